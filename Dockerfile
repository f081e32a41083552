# One image for all parts. The command selects the part: firmq gateway, worker, housekeeper, dashboard, outbox.
# checkov:skip=CKV_DOCKER_7: the base image is named by the argument, with its version
ARG PYTHON_IMAGE=python:3.13-slim

# Steps that need pip and the network; only their results are copied into the image.
# hadolint ignore=DL3006  # the image is named by the argument above, with its version
FROM ${PYTHON_IMAGE} AS build
WORKDIR /build
COPY requirements.lock pyproject.toml ./
# Wheels, each with its hash; crontab, which rq-scheduler needs, is one module that is published as source only.
RUN python -m venv --without-pip /opt/venv \
 && python -m pip --python /opt/venv/bin/python install --no-cache-dir --no-compile --no-deps \
      --require-hashes --only-binary :all: --no-binary crontab --requirement requirements.lock
# In place of the links that the package has to its parts.
COPY firmq/__init__.py firmq/__main__.py firmq/rq.py firmq/py.typed /app/firmq/
COPY shared /app/firmq/shared
COPY gateway /app/firmq/gateway
COPY worker /app/firmq/worker
COPY dashboard /app/firmq/dashboard
COPY firmq/django /app/firmq/django
COPY firmq/flask /app/firmq/flask
COPY firmq/fastapi /app/firmq/fastapi
COPY firmq/outbox /app/firmq/outbox
# Byte code is compiled here, as the root file system is read-only at run time; by content hash, so that the build is
# reproducible. The parts read their version from the metadata. The command is what pip would make of its entry point.
RUN python -m compileall -q --invalidation-mode unchecked-hash /app /opt/venv/lib \
 && python -c "import pathlib, tomllib; about = tomllib.loads(pathlib.Path('pyproject.toml').read_text())['project']; \
folder = next(pathlib.Path('/opt/venv/lib').glob('python3*/site-packages')) / 'firmq-{version}.dist-info'.format(**about); \
folder.mkdir(); (folder / 'METADATA').write_text('Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n'.format(**about))" \
 && printf '#!/opt/venv/bin/python\nfrom firmq.__main__ import main\nraise SystemExit(main())\n' >/opt/venv/bin/firmq \
 && chmod +x /opt/venv/bin/firmq

# hadolint ignore=DL3006
FROM ${PYTHON_IMAGE}
ARG VERSION=development
ARG REVISION=
LABEL org.opencontainers.image.title="Firmq" \
      org.opencontainers.image.description="A task queue on RQ's data and Redis: gateway, worker, housekeeper, dashboard" \
      org.opencontainers.image.licenses="MIT" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
# An unprivileged user, by number, so that Kubernetes can verify that it is not root; its folder for payloads, as a new
# volume there takes its owner from the image; and no package installer.
RUN groupadd --gid 10001 firmq \
 && useradd --uid 10001 --gid 10001 --no-create-home --home-dir /tmp --shell /usr/sbin/nologin firmq \
 && install -d -o 10001 -g 10001 /var/lib/firmq/payloads /var/lib/firmq/credentials \
      /var/lib/firmq/grafana-credentials \
 && python -c "import pathlib, pip, shutil; shutil.rmtree(pathlib.Path(pip.__file__).parent)"
COPY --from=build /opt/venv /opt/venv
COPY --from=build /app /app
# In a container a part listens on all addresses, and warns if it requires no authentication.
ENV PATH=/opt/venv/bin:$PATH \
    PYTHONPATH=/app \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    BIND_HOST=0.0.0.0 \
    APP_VERSION=${REVISION} \
    GATEWAY_PORT=5000
WORKDIR /app
USER 10001:10001
# Gateway; dashboard; metrics and health of worker, housekeeper and relay.
EXPOSE 5000 5001 5080 9100 9101 9102
HEALTHCHECK --interval=10s --timeout=5s --start-period=30s --start-interval=1s --retries=3 \
  CMD ["python", "-S", "-m", "firmq.shared.http.healthcheck", "5000", "5001", "9100", "9101", "9102"]
CMD ["firmq", "gateway"]
