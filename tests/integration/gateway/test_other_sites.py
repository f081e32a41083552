"""What a browser sends for a page of another site is refused; everybody else notices nothing."""

from __future__ import annotations

import pytest
from flask.testing import FlaskClient

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


def test_on_loopback_only_names_of_this_machine_are_answered(http: FlaskClient, make_gateway: MakeGateway) -> None:
    refused = http.get("/tasks", headers={"Host": "evil.example"})
    assert (refused.status_code, refused.json["type"]) == (403, "/problems/another-site")  # type: ignore[index]
    for host in ("127.0.0.1:8000", "localhost:8000", "[::1]:8000", "LOCALHOST"):
        assert http.get("/tasks", headers={"Host": host}).status_code == 200, host
    outside = make_gateway(bind_host="0.0.0.0", allow_anonymous=True)
    assert outside.http.get("/tasks", headers={"Host": "queue.example"}).status_code == 200
