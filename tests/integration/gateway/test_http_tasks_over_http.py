"""Tasks of the type `http` at the gateway: what is refused before it is stored."""

from __future__ import annotations

import pytest

from firmq.shared.config.settings import Settings
from firmq.shared.stores.task_types import TaskType
from firmq.worker.handlers.registry import load
from tests.integration.gateway.conftest import TYPES, MakeGateway
from tests.integration.gateway.driving import Gateway, problem
from tests.support.keys import keys

URL = "https://api.shop.example/orders"


def http_type() -> TaskType:
    return load(["firmq.worker.handlers.http_task"]).handlers["http"].published(Settings())


@pytest.fixture
def gateway(make_gateway: MakeGateway) -> Gateway:
    return make_gateway(
        (*TYPES, http_type()), http_task_hosts=("*.shop.example", "10.9.0.1"), http_task_allow=("10.9.0.0/16",)
    )


@pytest.mark.parametrize(
    ("data", "field", "text"),
    [
        ({}, "data", "url"),
        ({"url": "https://other.example/"}, "data.url", "not in HTTP_TASK_HOSTS"),
        ({"url": "http://127.0.0.1/"}, "data.url", "not in HTTP_TASK_HOSTS"),
        ({"url": "https://api.shop.example:22/"}, "data.url", "uses port 22"),
        ({"url": "ftp://api.shop.example/"}, "data.url", "must begin with https://"),
        ({"url": "https://me:secret@api.shop.example/"}, "data.url", "user or a password"),
        ({"url": URL, "method": "TRACE"}, "data.method", "GET"),
        ({"url": URL, "headers": {"hOsT": "x"}}, "data.headers.hOsT", "set by Firmq"),
        ({"url": URL, "headers": {"X-A": "1", "x-a": "2"}}, "data.headers.x-a", "appears twice"),
        ({"url": URL, "headers": {"X A": "1"}}, "data.headers", "X A"),
        ({"url": URL, "headers": {"X-A": "1\n"}}, "data.headers.X-A", ""),
        ({"url": URL, "expect": [99]}, "data.expect", ""),
        ({"url": URL, "query": {}}, "data", "query"),
    ],
)
def test_a_call_that_cannot_be_is_refused(gateway: Gateway, data: object, field: str, text: str) -> None:
    answer = gateway.http.post("/tasks", json={"type": "http", "data": data})
    [mistake] = problem(answer, 422, "invalid-request")["errors"]
    assert mistake["field"].replace('["', ".").replace('"]', "").startswith(field), mistake
    assert text in mistake["detail"]
    batch = gateway.http.post("/tasks/batch", json={"tasks": [{"type": "http", "data": data}]})
    assert mistake["detail"] in batch.text.replace("\\", "") or text in batch.text
    assert not gateway.redis.exists(keys.TASKS)


def test_a_schedule_of_forbidden_calls_is_refused(gateway: Gateway) -> None:
    answer = gateway.http.put(
        "/schedules/pulse", json={"type": "http", "interval": 60, "data": {"url": "http://10.0.0.1/"}}
    )
    assert problem(answer, 422, "invalid-request")["errors"][0]["field"] == "data.url"


def test_calls_that_are_allowed_get_in(gateway: Gateway) -> None:
    gateway.submit(
        type="http", data={"url": URL, "method": "PUT", "headers": {"X-A": "1"}, "body": [1], "expect": [200]}
    )
    gateway.submit(type="http", data={"url": "http://10.9.0.1:5000/"})
    assert gateway.http.get("/types/http").status_code == 200


def test_without_hosts_there_is_no_such_type(make_gateway: MakeGateway) -> None:
    answer = make_gateway().http.post("/tasks", json={"type": "http", "data": {"url": URL}})
    problem(answer, 422, "unknown-task-type")
