"""What POST /tasks takes, and what becomes of it."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from flask.testing import FlaskClient

from firmq.shared.domain.retry import read_rules
from firmq.shared.stores.task_types import TaskType, TaskTypes
from tests.integration.gateway.conftest import MakeGateway
from tests.integration.gateway.driving import Gateway, problem
from tests.support.keys import keys


def test_a_task_is_taken_and_found_again_where_location_points(http: FlaskClient) -> None:
    answer = http.post("/tasks", json={"type": "process", "data": {"a": [1, None]}, "priority": "high"})
    assert answer.status_code == 202
    body = answer.get_json()
    assert body == {"task_id": body["task_id"], "status": "pending", "type": "process", "queue": "high"}
    found = http.get(answer.headers["Location"]).get_json()
    assert (found["task_id"], found["status"], found["queue"]) == (body["task_id"], "pending", "high")
    assert found["data"] == {"a": [1, None]}


@pytest.mark.parametrize("priority", [{}, {"priority": None}, {"priority": "default"}, {"priority": "normal"}])
def test_default_means_the_default_priority(http: FlaskClient, priority: dict[str, Any]) -> None:
    answer = http.post("/tasks", json={"type": "process", "data": 1, **priority})
    assert answer.get_json()["queue"] == "normal"


@pytest.mark.parametrize(
    "data",
    [
        None,
        False,
        0,
        -0.0,
        "",
        [],
        {},
        10**200,
        1.5e300,
        "NUL \x00 and \x1f",
        "e\u0301 and \u00e9 and \u202e",
        "\U0001f600",
        {"k" * 100_000: 1},
        '"],{}],"os.system',
        {"": {"": [[]]}},
    ],
)
def test_any_json_comes_back_unchanged(gateway: Gateway, data: Any) -> None:
    shown = gateway.http.get(f"/tasks/{gateway.submit(data=data)}")
    assert json.dumps(json.loads(shown.data)["data"]) == json.dumps(data)


def test_everything_that_was_asked_for_is_shown(gateway: Gateway) -> None:
    task_id = gateway.submit(
        delay=60, expires_in=120.5, timeout=9.5, max_retries=1, retry={"initial_delay": 2}, tags=["b", "a", "b"]
    )
    shown = gateway.show(task_id)
    assert shown["status"] == "scheduled"
    assert shown["tags"] == ["b", "a"]
    assert shown["timeout_seconds"] == 9.5
    assert shown["max_retries"] == 1
    created = datetime.fromisoformat(shown["created_at"])
    assert datetime.fromisoformat(shown["next_attempt_at"]) - created == timedelta(seconds=60)
    assert datetime.fromisoformat(shown["expires_at"]) - created == timedelta(seconds=120.5)


def test_run_at_is_an_instant_whatever_its_zone(gateway: Gateway) -> None:
    at = (datetime.now(UTC) + timedelta(hours=5)).replace(microsecond=0)
    for text in (
        at.isoformat(),
        at.isoformat().replace("+00:00", "z"),
        (at + timedelta(hours=2)).strftime("%FT%T+02:00"),
    ):
        shown = gateway.show(gateway.submit(run_at=text))
        assert datetime.fromisoformat(shown["next_attempt_at"]) == at


def test_a_moment_that_has_passed_means_now(gateway: Gateway) -> None:
    assert gateway.show(gateway.submit(run_at="2001-01-01T00:00:00Z"))["status"] == "pending"


def test_the_types_own_retries_count_unless_the_task_says_otherwise(gateway: Gateway) -> None:
    assert gateway.show(gateway.submit(type="resize", data={"url": "x"}))["max_retries"] == 7
    assert gateway.show(gateway.submit(type="resize", data={"url": "x"}, max_retries=0))["max_retries"] == 0
    assert gateway.show(gateway.submit())["max_retries"] == 3


def test_a_valid_trace_is_kept_for_the_worker_and_a_broken_one_ignored(gateway: Gateway) -> None:
    trace = f"00-{'a' * 32}-{'b' * 16}-01"
    for given, kept in (
        (trace, trace),
        (f"00-{'0' * 32}-{'b' * 16}-01", None),
        ("00-abc", None),
        (f"ff{trace[2:]}", None),
    ):
        answer = gateway.http.post("/tasks", json={"type": "process", "data": 1}, headers={"traceparent": given})
        assert gateway.show(answer.get_json()["task_id"])["trace_parent"] == kept


def test_before_any_worker_has_come_the_message_says_start_one(make_gateway: MakeGateway) -> None:
    http = make_gateway(types=()).http
    answer = http.post("/tasks", json={"type": "process", "data": 1})
    assert "start one" in problem(answer, 503, "no-task-types")["detail"]
    assert answer.headers["Retry-After"]


def test_a_type_published_a_moment_ago_is_known_at_once(gateway: Gateway) -> None:
    new = {"type": "brand-new", "data": 1}
    problem(gateway.http.post("/tasks", json=new), 422, "unknown-task-type")
    TaskTypes(gateway.redis).publish([TaskType(name="brand-new", schema={})])
    assert gateway.http.post("/tasks", json=new).status_code == 202


def test_a_list_of_pauses_is_a_retry_policy_of_a_type_and_of_a_schedule(gateway: Gateway) -> None:
    changes, _ = read_rules([15, 60, 300])
    TaskTypes(gateway.redis).publish([TaskType(name="paced", schema={}, retry=changes)])
    assert gateway.http.post("/tasks", json={"type": "paced", "data": 1}).status_code == 202
    assert gateway.http.get("/types/paced").get_json()["retry"]["pauses"] == [15, 60, 300]
    schedule = {"type": "paced", "interval": 60, "retry": {"pauses": [1, 2.5]}}
    assert gateway.http.put("/schedules/paced", json=schedule).status_code == 201
    assert gateway.http.get("/schedules/paced").get_json()["retry"] == {"pauses": [1, 2.5]}


def test_a_full_queue_is_a_429_that_says_when_to_try_again(make_gateway: MakeGateway) -> None:
    gateway = make_gateway(max_queue_length=2)
    gateway.submit(), gateway.submit()
    answer = gateway.http.post("/tasks", json={"type": "process", "data": 1})
    assert "normal" in problem(answer, 429, "queue-full")["detail"]
    assert int(answer.headers["Retry-After"]) >= 1
    assert gateway.submit(priority="high")


@pytest.mark.parametrize(
    ("data", "pointer", "says"),
    [
        ({}, "#/data", "url"),
        ({"url": 5}, "#/data/url", "string"),
        ({"url": "x", "sizes": [1, "2"]}, "#/data/sizes/1", "integer"),
        ({"url": "x", "sizes": [0]}, "#/data/sizes/0", "minimum"),
        ({"url": "x", "color": 1}, "#/data", "color"),
        ([], "#/data", "object"),
        (None, "#/data", "object"),
        ({"url": "x" * 5000, "sizes": "y" * 5000}, "#/data/sizes", "…"),
    ],
)
def test_wrong_data_is_refused_with_its_place_and_what_is_expected(
    http: FlaskClient, data: Any, pointer: str, says: str
) -> None:
    answer = http.post("/tasks", json={"type": "resize", "data": data})
    [error] = problem(answer, 422, "invalid-request")["errors"]
    assert error["pointer"] == pointer
    assert says in error["detail"]
    assert len(error["detail"]) < 400


def test_every_mistake_in_the_data_is_named_up_to_a_bound(http: FlaskClient) -> None:
    answer = http.post("/tasks", json={"type": "resize", "data": {"url": 1, "sizes": ["x"] * 500}})
    assert len(problem(answer, 422, "invalid-request")["errors"]) == 20


def test_alternatives_are_named_as_people_say_them(http: FlaskClient) -> None:
    answer = http.post("/tasks", json={"type": "calculate", "data": []})
    [error] = problem(answer, 422, "invalid-request")["errors"]
    assert error["detail"] == "must be an integer, a number or a string, got an array"


def test_a_schema_that_cannot_be_used_harms_only_its_type(make_gateway: MakeGateway) -> None:
    broken = TaskType(name="broken", schema={"type": "no such kind"})
    remote = TaskType(name="remote", schema={"$ref": "http://127.0.0.1:1/schema.json"})
    gateway = make_gateway(types=(broken, remote, TaskType(name="process", schema={})))
    for name in ("broken", "remote"):
        problem(gateway.http.post("/tasks", json={"type": name, "data": 1}), 503, "no-task-types")
    assert gateway.submit()


def test_nothing_is_stored_of_what_is_refused(http: FlaskClient, gateway: Gateway) -> None:
    http.post("/tasks", json={"type": "process", "data": 1, "delay": -1})
    http.post("/tasks", json={"type": "resize", "data": 1})
    assert gateway.redis.zcard(keys.TASKS) == 0
