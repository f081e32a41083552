"""Secrets and payloads are planted; nothing that comes out of a process has them: logs, metrics, spans, pages."""

from __future__ import annotations

import base64
import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from redis import Redis
from werkzeug.security import generate_password_hash

from firmq.shared.local.embedded_redis import EmbeddedRedis
from firmq.shared.stores.api_keys import Scope, new_key
from tests.support.collector import Collector
from tests.support.harness import System, free_port, running_system, wait_until
from tests.support.least_privilege import url_of_user

CARD = "4929 0000 1111 2222"
WEBHOOK = "whsec_" + base64.b64encode(b"planted-webhook-secret-0").decode()
COOKIE = "planted-cookie-secret-123456"
PASSWORD = "planted horse staple"


class Site:
    """All parts with secrets, and the ports on which they answer."""

    def __init__(self, system: System, collector: Collector, key: str, secrets: dict[str, str]) -> None:
        self.system = system
        self.collector = collector
        self.key = key
        self.secrets = secrets
        self.ports = {name: free_port() for name in ("gateway", "dashboard", "worker", "housekeeper")}

    def ask(
        self, part: str, path: str, body: object = None, method: str | None = None, key: str = ""
    ) -> tuple[int, str]:
        """The status, and everything that was answered, headers too."""
        headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {key}"} if key else {})
        data = None if body is None else json.dumps(body).encode()
        asked = urllib.request.Request(f"http://127.0.0.1:{self.ports[part]}{path}", data, headers, method=method)
        try:
            with urllib.request.urlopen(asked, timeout=30) as answer:
                return answer.status, f"{answer.headers}\n{answer.read().decode()}"
        except urllib.error.HTTPError as error:
            return error.code, f"{error.headers}\n{error.read().decode()}"
        except OSError:
            return 0, ""

    def alive(self, part: str) -> bool:
        return self.ask(part, "/health/live")[0] == 200


@pytest.fixture(scope="module")
def site(redis_server: EmbeddedRedis, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    redis_server.start()
    url = url_of_user(redis_server)
    hashed = generate_password_hash(PASSWORD, "pbkdf2:sha256:1000")
    key, text = new_key("shop", [Scope.ADMIN])
    secrets = {
        "password of Redis": url.split("://")[1].split("@")[0].partition(":")[2],
        "API key": text,
        "hash of the API key": key.digest.hex(),
        "secret of webhooks": WEBHOOK,
        "secret of cookies": COOKIE,
        "password": PASSWORD,
        "hash of the password": hashed,
    }
    with Redis.from_url(redis_server.url, protocol=2) as redis:
        redis.flushall()
        folder = tmp_path_factory.mktemp("secrets")
        collector = Collector()
        try:
            environment = {
                "LOG_LEVEL": "DEBUG",
                "API_KEYS": key.line,
                "WEBHOOK_SECRETS": WEBHOOK,
                "WEBHOOK_ALLOW": "127.0.0.1",
                "DASHBOARD_SECRET": COOKIE,
                "DASHBOARD_USERS": f"ann:admin:{hashed}",
                "OTEL_EXPORTER_OTLP_ENDPOINT": collector.url,
                "OTEL_BSP_SCHEDULE_DELAY": "100",
            }
            with running_system(redis, url, folder, **environment) as system:
                site = Site(system, collector, text, secrets)
                start(site)
                yield site
        finally:
            collector.stop()


def start(site: Site) -> None:
    ports = {f"{name}_PORT": str(port) for name, port in site.ports.items()}
    system = site.system
    system.start("gateway", GATEWAY_PORT=ports["gateway_PORT"], GATEWAY_PROCESSES="1")
    system.start("dashboard", DASHBOARD_PORT=ports["dashboard_PORT"])
    system.start_worker(WORKER_METRICS_PORT=ports["worker_PORT"], WORKER_EXECUTORS="2")
    system.start_housekeeper(HOUSEKEEPER_METRICS_PORT=ports["housekeeper_PORT"])
    for part in site.ports:
        wait_until(partial(site.alive, part), f"{part} answers")


@pytest.fixture(scope="module")
def said(site: Site) -> dict[str, str]:
    """Everything that came out of the processes while much went right and much went wrong."""
    pages = {}
    data = {"customer": {"card_number": CARD}}
    hook = {"url": f"http://127.0.0.1:{free_port()}/hook", "retry": {"max_retries": 0}}
    good = {"type": "echo", "data": data, "webhook": hook}
    failing = {"type": "sealed", "data": data, "max_retries": 0}
    ids = []
    for body in (good, failing):
        status, text = site.ask("gateway", "/tasks", body, key=site.key)
        assert status == 202, text
        ids.append(json.loads(text.rpartition("\n\n")[2])["task_id"])
    for each in ids:
        site.system.ended(each)
    wrong = site.key[:-1] + ("0" if site.key[-1] != "0" else "1")
    for key in ("", wrong, site.key):
        for path in ("/tasks", "/nothing", "/tasks?limit=no", "/health/detail", "/admin/keys", "/openapi.json"):
            pages[f"GET {path} with {key[:6]}"] = site.ask("gateway", path, key=key)[1]
        pages[f"POST with {key[:6]}"] = site.ask("gateway", "/tasks", {"type": "none"}, key=key)[1]
    for part in site.ports:
        for path in ("/metrics", "/health/ready", "/health/live", "/nothing"):
            pages[f"{part} {path}"] = site.ask(part, path)[1]
    pages["sign in"] = site.ask("dashboard", "/sign-in", {}, method="POST")[1]
    wait_until(lambda: any(span.name.startswith("process") for span in site.collector.spans), "spans arrive")
    pages["spans"] = repr(site.collector.spans)
    pages["logs"] = site.system.logs()
    return pages


def test_no_process_writes_a_secret(site: Site, said: dict[str, str]) -> None:
    assert len(said) > 30
    found = [(name, where) for name, secret in site.secrets.items() for where, text in said.items() if secret in text]
    assert not found


def test_no_payload_is_in_a_log_a_metric_or_a_span(said: dict[str, str]) -> None:
    outside = {where: text for where, text in said.items() if where in ("logs", "spans") or "/metrics" in where}
    assert len(outside) == 6
    assert not [where for where, text in outside.items() if CARD in text]


def test_no_secret_is_in_a_list_of_processes(site: Site) -> None:
    for process in site.system.processes:
        for pid in (process.pid, *site.system.executors(process)):
            shown = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace")
            assert not [name for name, secret in site.secrets.items() if secret in shown]


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"X-Request-ID": "forged id", "traceparent": "forged", "User-Agent": "forged"}, 404),
        ({"X-Request-ID": "forged\x1b[2J"}, 400),
        ({"User-Agent": "forged\x1b[31m"}, 400),
    ],
)
def test_a_request_cannot_write_lines_of_its_own_into_the_log(site: Site, headers: dict[str, str], status: int) -> None:
    address = f"http://127.0.0.1:{site.ports['gateway']}/tasks/%0d%0aforged%1b[2J%e2%80%ae?x=%0aforged"
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(urllib.request.Request(address, headers=headers), timeout=30)
    assert refused.value.code == status
    request_id = refused.value.headers["X-Request-ID"]
    assert request_id.isalnum()
    wait_until(lambda: request_id in site.system.logs(), "the request is in the log")
    for line in site.system.logs().split("\n"):
        assert "\x1b" not in line
        assert "\r" not in line
        assert not line.startswith("forged")
