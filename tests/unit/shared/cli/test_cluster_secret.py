"""The secret that the Job on Kubernetes creates, against a server that answers as the API server does."""

from __future__ import annotations

import base64
import ipaddress
import json
import re
import ssl
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import trustme
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from firmq.dashboard.auth.users import Role, Users
from firmq.shared.cli import cluster_secret
from firmq.shared.stores.api_keys import Scope, read_key
from tests.support.receiver import Receiver, receiving

PATH = "/api/v1/namespaces/shop/secrets/task-queue"
FORBIDDEN = b'{"message": "secrets is forbidden"}'


@pytest.fixture
def api_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Receiver]:
    """An API server, with the files and variables by which a pod knows it."""
    authority = trustme.CA()
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("127.0.0.1").configure_cert(tls)
    authority.cert_pem.write_to_path(tmp_path / "ca.crt")
    (tmp_path / "token").write_text("t0ken\n")
    (tmp_path / "namespace").write_text("shop")
    monkeypatch.setattr(cluster_secret, "ACCOUNT", tmp_path)
    with receiving(tls=tls) as server:
        monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
        monkeypatch.setenv("KUBERNETES_SERVICE_PORT", str(server.port))
        yield server


def test_a_missing_secret_is_created_by_an_apply_of_its_name_without_force(
    api_server: Receiver, capsys: pytest.CaptureFixture[str]
) -> None:
    api_server.answers = [(404, {}, b"{}"), (201, {}, b"{}")]
    cluster_secret.main("task-queue")
    assert api_server.lines[0] == f"GET {PATH}"
    assert re.fullmatch(rf"PATCH {PATH}\?fieldManager=credentials-\w+", api_server.lines[1])
    headers, body = api_server.got[1]
    assert headers["authorization"] == "Bearer t0ken"
    assert headers["content-type"] == "application/apply-patch+yaml"
    secret = json.loads(body)
    assert (secret["kind"], secret["metadata"]) == ("Secret", {"name": "task-queue"})
    printed = "".join(capsys.readouterr())
    assert printed == "secret task-queue created\n"


def test_each_run_is_a_manager_of_its_own_so_that_of_two_at_once_the_second_is_a_conflict(api_server: Receiver) -> None:
    api_server.answers = [(404, {}, b"{}"), (201, {}, b"{}"), (404, {}, b"{}"), (409, {}, b"{}")]
    cluster_secret.main("task-queue")
    cluster_secret.main("task-queue")
    assert len(set(api_server.lines)) == 3


def test_the_entries_are_random_and_let_in_who_reads_them() -> None:
    first, second = ({name: plain(text) for name, text in cluster_secret.random_entries().items()} for _ in range(2))
    assert not first.items() & second.items()
    admin = Users([first["dashboard-users"]]).check("admin", first["dashboard-password"])
    assert admin
    assert admin.role == Role.ADMIN
    assert not Users([first["dashboard-users"]]).check("admin", second["dashboard-password"])
    key = read_key(first["api-keys"].strip())
    assert key.scopes == (Scope.SUBMIT, Scope.READ)
    assert first["api-key"].startswith(f"fq_{key.id}_")
    assert len(first["redis-password"]) == 64


def plain(text: str) -> str:
    return base64.b64decode(text, validate=True).decode()


@pytest.mark.parametrize(
    ("answers", "asked"),
    [
        ([200], ["GET"]),  # made by people, or by an earlier run
        ([404, 409], ["GET", "PATCH"]),  # made by people between the two requests
    ],
)
def test_a_secret_that_exists_is_not_changed(
    api_server: Receiver, capsys: pytest.CaptureFixture[str], answers: list[int], asked: list[str]
) -> None:
    api_server.answers = [(status, {}, b"{}") for status in answers]
    cluster_secret.main("task-queue")
    assert [line.split()[0] for line in api_server.lines] == asked
    assert capsys.readouterr().out == "secret task-queue exists and was not changed\n"


@pytest.mark.parametrize("answers", [[403], [404, 403], [404, 404], [503], [404, 500], [401]])
def test_a_refusal_fails_the_job_and_is_named(
    api_server: Receiver, capsys: pytest.CaptureFixture[str], answers: list[int]
) -> None:
    api_server.answers = [(status, {}, FORBIDDEN) for status in answers]
    with pytest.raises(SystemExit, match=f"secret task-queue not created: {answers[-1]} .*forbidden"):
        cluster_secret.main("task-queue")
    assert not capsys.readouterr().out


def test_a_server_that_another_authority_has_signed_gets_no_token(api_server: Receiver) -> None:
    trustme.CA().cert_pem.write_to_path(cluster_secret.ACCOUNT / "ca.crt")
    with pytest.raises(ssl.SSLCertVerificationError):
        cluster_secret.main("task-queue")
    assert not api_server.got


def test_python_3_13_accepts_the_certificates_of_clusters_without_key_identifiers(
    tmp_path: Path, api_server: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = ssl.create_default_context

    def strict(*args: Any, **options: Any) -> ssl.SSLContext:
        context = made(*args, **options)
        context.verify_flags |= ssl.VERIFY_X509_STRICT  # as Python 3.13 does
        return context

    tls = made(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(plain_certificate(tmp_path))
    monkeypatch.setattr(ssl, "create_default_context", strict)
    with receiving(tls=tls) as server:
        monkeypatch.setenv("KUBERNETES_SERVICE_PORT", str(server.port))
        server.answers = [(200, {}, b"{}")]
        cluster_secret.main("task-queue")
        assert server.lines == [f"GET {PATH}"]


def plain_certificate(folder: Path) -> Path:
    """A file with a certificate of 127.0.0.1 and its key, without key identifiers; `ca.crt` is its authority."""
    keys = [ec.generate_private_key(ec.SECP256R1()) for _ in range(2)]
    names = [x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, each)]) for each in ("kubernetes", "apiserver")]
    host = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    now = datetime.now(UTC)
    authority, server = (
        x509.CertificateBuilder(names[0], name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(extension, critical=critical)
        .sign(keys[0], hashes.SHA256())
        .public_bytes(Encoding.PEM)
        for name, key, extension, critical in (
            (names[0], keys[0], x509.BasicConstraints(ca=True, path_length=None), True),
            (names[1], keys[1], host, False),
        )
    )
    (folder / "ca.crt").write_bytes(authority)
    path = folder / "server.pem"
    path.write_bytes(server + keys[1].private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    return path
