"""The secret that the Job on Kubernetes creates, against a server that answers as the API server does."""

from __future__ import annotations

import base64
import json
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest
import trustme

from taskqueue.dashboard.auth.users import Role, Users
from taskqueue.shared.cli import cluster_secret
from taskqueue.shared.stores.api_keys import Scope, read_key
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
    assert api_server.lines == [f"GET {PATH}", f"PATCH {PATH}?fieldManager=credentials"]
    headers, body = api_server.got[1]
    assert headers["authorization"] == "Bearer t0ken"
    assert headers["content-type"] == "application/apply-patch+yaml"
    secret = json.loads(body)
    assert (secret["kind"], secret["metadata"]) == ("Secret", {"name": "task-queue"})
    printed = "".join(capsys.readouterr())
    assert printed == "secret task-queue created\n"


def test_the_entries_are_random_and_let_in_who_reads_them() -> None:
    first, second = ({name: plain(text) for name, text in cluster_secret.random_entries().items()} for _ in range(2))
    assert not first.items() & second.items()
    admin = Users([first["dashboard-users"]]).check("admin", first["dashboard-password"])
    assert admin
    assert admin.role == Role.ADMIN
    assert not Users([first["dashboard-users"]]).check("admin", second["dashboard-password"])
    key = read_key(first["api-keys"].strip())
    assert key.scopes == (Scope.SUBMIT, Scope.READ)
    assert first["api-key"].startswith(f"tq_{key.id}_")
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
