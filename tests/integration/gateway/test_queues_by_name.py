"""Tasks name a queue, which exists from its first task on."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from flask.testing import FlaskClient

from firmq.shared.stores import queue_register
from firmq.shared.stores.api_keys import Scope, new_key
from firmq.shared.stores.task_types import TaskType
from firmq.shared.stores.workers import WorkerInfo, Workers
from tests.integration.gateway.conftest import MakeGateway
from tests.integration.gateway.driving import Gateway, problem
from tests.integration.gateway.test_keys import bearer
from tests.support.keys import keys

TYPES = (
    TaskType(name="process", schema={}),
    TaskType(name="train", schema={}, queue="gpu"),
    TaskType(name="mail", schema={}, queue="default"),
)


def queue_of(http: FlaskClient, **body: Any) -> str:
    answer = http.post("/tasks", json={"data": None, **body})
    assert answer.status_code == 202, answer.text
    return str(answer.get_json()["queue"])


def test_a_task_waits_in_the_queue_that_it_names(gateway: Gateway) -> None:
    task = gateway.submit(queue="gpu.large-1")
    assert gateway.show(task)["queue"] == "gpu.large-1"
    shown = {each["name"]: each for each in gateway.http.get("/queues").get_json()["items"]}
    assert shown["gpu.large-1"]["pending"] == 1
    assert shown["gpu.large-1"]["weight"] == shown["normal"]["weight"]
    for query in ("queue=gpu.large-1", "status=pending&queue=gpu.large-1", "status=pending"):
        assert [each["task_id"] for each in gateway.http.get(f"/tasks?{query}").get_json()["items"]] == [task]


@pytest.mark.parametrize(
    ("body", "queue"),
    [
        ({"type": "train"}, "gpu"),
        ({"type": "train", "queue": "cpu"}, "cpu"),
        ({"type": "train", "priority": "low"}, "low"),
        ({"type": "train", "priority": "default"}, "normal"),
        ({"type": "mail"}, "normal"),
        ({"type": "process"}, "normal"),
        ({"type": "process", "queue": "default"}, "normal"),
    ],
)
def test_the_queue_of_the_task_comes_before_that_of_its_type(
    make_gateway: MakeGateway, body: dict[str, Any], queue: str
) -> None:
    assert queue_of(make_gateway(types=TYPES).http, **body) == queue


def test_one_client_does_not_take_all_queue_names(make_gateway: MakeGateway, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue_register, "FRESH", 0.0)
    (one, one_text), (two, two_text) = new_key("one", [Scope.SUBMIT]), new_key("two", [Scope.SUBMIT])
    gateway = make_gateway(api_keys=(one.line, two.line), max_queues=12)

    def submit(text: str, queue: str) -> int:
        body = {"type": "process", "data": 1, "queue": queue, "delay": 30_000_000}
        return gateway.http.post("/tasks", json=body, headers=bearer(text)).status_code

    many = [{"type": "process", "data": 1, "queue": f"b{at}"} for at in range(4)]
    answer: Any = gateway.http.post("/tasks/batch", json={"tasks": many}, headers=bearer(one_text)).json
    assert answer["accepted"] == 4
    assert [submit(one_text, f"q{at}") for at in range(4)] == [202, 202, 409, 409]
    answer = gateway.http.post(
        "/tasks/batch",
        json={"tasks": [{**each, "queue": f"c{at}"} for at, each in enumerate(many)]},
        headers=bearer(one_text),
    ).json
    assert answer["refused"] == 4
    assert "one has created half of MAX_QUEUES" in answer["items"][0]["problem"]["detail"]
    assert submit(one_text, "b0") == submit(one_text, "low") == submit(two_text, "mine") == 202
    assert submit(one_text, "mine") == 202
    # Queues that are gone count no longer.
    for name in ("q0", "q1"):
        gateway.redis.zrem(keys.QUEUES, name)
        gateway.redis.hset(keys.QUEUE_CREATORS, name, "1 one")
    assert submit(one_text, "new") == 202


def test_a_task_names_a_queue_or_a_priority(http: FlaskClient) -> None:
    both = http.post("/tasks", json={"type": "process", "data": 1, "queue": "gpu", "priority": "low"})
    assert "has both queue and priority: send one of them" in problem(both, 422, "invalid-request")["detail"]
    odd = http.post("/tasks", json={"type": "process", "data": 1, "queue": "a/b"})
    assert "must be 1 to 64 characters" in problem(odd, 422, "invalid-request")["detail"]


def test_a_queue_too_many_is_refused_with_advice_and_a_configured_one_is_not(make_gateway: MakeGateway) -> None:
    http = make_gateway(max_queues=1).http
    assert queue_of(http, type="process", queue="gpu") == "gpu"
    refused = http.post("/tasks", json={"type": "process", "data": 1, "queue": "other"})
    assert "MAX_QUEUES" in problem(refused, 409, "too-many-queues")["detail"]
    keyed = http.post("/tasks", json={"type": "process", "data": 1, "queue": "other"}, headers={"Idempotency-Key": "k"})
    assert keyed.status_code == 409
    assert queue_of(http, type="process", priority="low") == "low"
    batch = http.post("/tasks/batch", json={"tasks": [{"type": "process", "data": 1, "queue": "other"}]})
    assert batch.get_json()["items"][0]["problem"]["status"] == 409


def test_a_batch_names_queues_and_a_new_queue_can_be_paused(gateway: Gateway) -> None:
    batch = gateway.http.post("/tasks/batch", json={"tasks": [{"type": "process", "data": 1, "queue": "gpu"}] * 2})
    assert batch.status_code == 202, batch.text
    paused = gateway.http.post("/queues/gpu/pause", json={"reason": "maintenance"})
    assert (paused.status_code, paused.get_json()["pending"]) == (200, 2)
    assert gateway.http.post("/queues/none/pause", json={"reason": "maintenance"}).status_code == 404


def test_a_queue_of_rq_jobs_is_shown_filtered_and_paused_but_takes_no_tasks(gateway: Gateway) -> None:
    gateway.redis.zadd(keys.QUEUES, {"rq:mail": 1})
    assert gateway.http.get("/tasks?queue=rq:mail").get_json()["items"] == []
    assert gateway.http.post("/queues/rq:mail/pause", json={"reason": "maintenance"}).get_json()["paused"]
    assert gateway.http.post("/queues/rq%3Amail/resume").get_json()["paused"] is False
    assert gateway.http.post("/tasks", json={"type": "process", "queue": "rq:mail"}).status_code == 422
    schedule = gateway.http.put("/schedules/rq:mail", json={"type": "process", "interval": 60})
    assert schedule.status_code in (404, 422)


def test_a_schedule_names_a_queue_or_takes_that_of_its_type(make_gateway: MakeGateway) -> None:
    http = make_gateway(types=TYPES).http
    for body, queue in (({"queue": "nightly"}, "nightly"), ({}, "gpu"), ({"priority": "low"}, "low")):
        put = http.put("/schedules/s", json={"type": "train", "data": 1, "interval": 60, **body})
        assert put.get_json()["queue"] == queue
    both = http.put("/schedules/s", json={"type": "train", "interval": 60, "queue": "a", "priority": "low"})
    assert both.status_code == 422


def test_health_names_a_queue_with_tasks_that_no_worker_takes(gateway: Gateway) -> None:
    worker = WorkerInfo(
        name="w", host="h", pid=1, version="1", queues=("normal", "gpu-*"), executors=1, started_at=datetime.now(UTC)
    )
    Workers(gateway.redis).announce(worker)
    gateway.submit(queue="gpu-1")
    gateway.submit(queue="mail")
    [note] = [note for note in gateway.http.get("/health").get_json()["notes"] if "takes from" in note]
    assert note.startswith("no worker takes from mail; 1 task waits. Start a worker without WORKER_QUEUES")


def test_metrics_have_a_bounded_number_of_queues(make_gateway: MakeGateway, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("firmq.gateway.metrics.MOST_QUEUES", 2)
    http = make_gateway().http
    for name in ("a", "b", "c", "d"):
        queue_of(http, type="process", queue=name)
    page = http.get("/metrics").text
    assert 'task_submissions_total{priority="other",type="process"} 2.0' in page
