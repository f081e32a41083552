"""What a browser sends for a page of another site is refused; everybody else notices nothing."""

from __future__ import annotations

import pytest
from flask.testing import FlaskClient

from firmq.shared.stores.api_keys import Scope, new_key
from tests.integration.gateway.conftest import MakeGateway

NEW = {"type": "process", "data": 1}


@pytest.mark.parametrize(
    "headers",
    [
        {"Sec-Fetch-Site": "cross-site"},
        {"Origin": "https://evil.example"},
        {"Origin": "http://localhost:8080"},
        {"Origin": "null"},
        {"Origin": "http://[::1"},
    ],
)
def test_a_page_of_another_site_changes_nothing(http: FlaskClient, headers: dict[str, str]) -> None:
    answer = http.post("/tasks", json=NEW, headers=headers)
    assert (answer.status_code, answer.json["type"]) == (403, "/problems/another-site")  # type: ignore[index]
    assert http.get("/tasks").json["items"] == []  # type: ignore[index]
    assert http.get("/tasks", headers=headers).status_code == 200


@pytest.mark.parametrize("headers", [{}, {"Origin": "http://localhost", "Sec-Fetch-Site": "same-origin"}])
def test_pages_from_here_and_commands_go_on_working(http: FlaskClient, headers: dict[str, str]) -> None:
    assert http.post("/tasks", json=NEW, headers=headers).status_code == 202


def test_on_loopback_only_local_host_names_are_answered(http: FlaskClient, make_gateway: MakeGateway) -> None:
    refused = http.get("/tasks", headers={"Host": "evil.example"})
    assert (refused.status_code, refused.json["type"]) == (403, "/problems/another-site")  # type: ignore[index]
    for host in ("127.0.0.1:8000", "localhost:8000", "[::1]:8000", "LOCALHOST"):
        assert http.get("/tasks", headers={"Host": host}).status_code == 200, host
    proxied = make_gateway(allowed_hosts=("Queue.example",))
    assert proxied.http.get("/tasks", headers={"Host": "queue.example"}).status_code == 200


def test_without_keys_a_rebound_host_name_is_refused(make_gateway: MakeGateway) -> None:
    """As in Docker Compose, where the containers listen to everybody and their ports are published on loopback."""
    open_to_all = make_gateway(bind_host="0.0.0.0", allow_anonymous=True, allowed_hosts=("queue.example",))
    refused = open_to_all.http.get("/tasks", headers={"Host": "evil.example:8000"})
    assert (refused.status_code, refused.json["type"]) == (403, "/problems/another-site")  # type: ignore[index]
    assert "ALLOWED_HOSTS" in refused.json["detail"]  # type: ignore[index]
    for host in ("127.0.0.1:8000", "[2001:db8::1]", "localhost", "gateway:5000", "gateway.ns.svc", "queue.example"):
        assert open_to_all.http.get("/tasks", headers={"Host": host}).status_code == 200, host


def test_where_everybody_needs_a_key_any_name_will_do(make_gateway: MakeGateway) -> None:
    key, text = new_key("shop", [Scope.READ])
    closed = make_gateway(bind_host="0.0.0.0", api_keys=(key.line,))
    headers = {"Host": "queue.example", "Authorization": f"Bearer {text}"}
    assert closed.http.get("/tasks", headers=headers).status_code == 200
