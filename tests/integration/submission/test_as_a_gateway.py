"""A direct submission stores and refuses what a gateway does, with the same words."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from redis import Redis

from firmq import Client
from firmq.gateway.app import create_app
from firmq.shared.config.settings import Settings
from firmq.shared.redis.client import connect, text
from firmq.shared.submission.options import plain
from firmq.shared.submission.problems import Problem, Refused, problem
from tests.integration.submission.conftest import MakeQueue
from tests.support.features import rows
from tests.support.keys import keys

LATER = datetime.now(UTC) + timedelta(days=3)
STORED: tuple[Mapping[str, Any], ...] = (
    {"type": "process"},
    {"type": "process", "data": {"a": [1, 2.5, "ä"]}, "priority": "high", "tags": ["x", "y", "x"]},
    {"type": "resize", "data": {"url": "u", "sizes": [1, 2]}, "timeout": 5, "max_retries": 2},
    {"type": "process", "data": 1, "delay": timedelta(seconds=90), "expires_in": 3600},
    {"type": "process", "data": None, "run_at": LATER, "retry": {"pauses": [1, 2, 3]}},
    {"type": "process", "unique_key": "k", "unique_until": 30, "limit_key": "l", "fair_key": "tenant"},
    {"type": "process", **dict(rows("OPTIONS"))},
)
REFUSED: tuple[Mapping[str, Any], ...] = (
    {"type": "unheard", "data": 1},
    {"type": "resize", "data": {"sizes": ["large"], "other": 1}},
    {"type": "process", "priority": "urgent"},
    {"type": "process", "delay": -1},
    {"type": "process", "delay": 1, "run_at": LATER},
    {"type": "process", "max_retries": "three", "tags": ["with space"], "unknown": 1},
    {"type": "process", "depends_on": ["none-such"]},
    {"type": "process", "depends_on": [0]},
    {"type": "process", "on_conflict": "existing"},
    {"type": "process", "webhook": {"url": "http://127.0.0.1/inside"}},
    {"type": 7, "data": 1},
)
TIMES = ("created_at", "enqueued_at", "due_at", "expires_at")


class Gateway:
    """A gateway on the same Redis, whose answers are read as the client reads them."""

    def __init__(self, url: str, **settings: Any) -> None:
        self.redis = connect(url)
        self.http = create_app(Settings(**dict(rows("SETTINGS")), **settings), self.redis).test_client()

    def submit(self, key: str | None = None, **body: Any) -> str:
        headers = {"Content-Type": "application/json", **({"Idempotency-Key": key} if key else {})}
        answer = self.http.post("/tasks", data=json.dumps({"data": None, **plain(body)}), headers=headers)
        if answer.status_code >= 400:
            raise problem(answer.status_code, answer.data)
        return str(answer.get_json()["task_id"])


@pytest.fixture
def gateway(submitter_url: str, redis_url: str) -> Gateway:
    return Gateway(redis_url)


def record(redis: Redis, task_id: str) -> dict[str, str]:
    fields = {text(name): text(value) for name, value in redis.hgetall(keys.rq_job(task_id)).items()}
    return {name: value for name, value in fields.items() if name not in TIMES}


@pytest.mark.parametrize("body", STORED, ids=" ".join)
def test_a_record_is_the_same(gateway: Gateway, queue: Any, redis_client: Redis, body: dict[str, Any]) -> None:
    ours = queue.submit(body["type"], **{name: value for name, value in body.items() if name != "type"})
    assert (ours.type, ours.queue) == (body["type"], body.get("priority", "normal"))
    mine = record(redis_client, ours.task_id)
    if "unique_key" in body:
        redis_client.delete(keys.unique_for("process:k"))
    theirs = record(redis_client, gateway.submit(**body))
    assert mine.pop("submitted_by") == "submitter", "the Redis user; the gateway has no keys here"
    assert mine == theirs
    assert mine["state"] == ours.status


@pytest.mark.parametrize("body", REFUSED, ids=" ".join)
def test_a_refusal_is_the_same(gateway: Gateway, queue: Any, redis_client: Redis, body: dict[str, Any]) -> None:
    with pytest.raises(Problem) as theirs:
        gateway.submit(**body)
    with pytest.raises(Problem) as ours:
        queue.submit(body["type"], **{name: value for name, value in body.items() if name != "type"})
    assert type(ours.value) is type(theirs.value)
    for name in ("status", "type", "title", "detail", "errors"):
        assert getattr(ours.value, name) == getattr(theirs.value, name), name
    assert redis_client.zcard(keys.TASKS) == 0


def test_an_idempotency_key_is_recognized_on_both_ways(gateway: Gateway, queue: Any) -> None:
    first = gateway.submit(key="k1", type="process", data={"a": 1}, priority="high")
    assert queue.submit("process", {"a": 1}, idempotency_key="k1", priority="high").task_id == first
    second = queue.submit("process", {"a": (1, 2)}, idempotency_key="k2", delay=timedelta(seconds=5))
    assert gateway.submit(key="k2", type="process", data={"a": [1, 2]}, delay=5.0) == second.task_id
    with pytest.raises(Refused, match="different request"):
        queue.submit("process", {"a": 3}, idempotency_key="k1")


def test_a_repetition_is_answered_even_when_its_type_is_gone(make_queue: MakeQueue, redis_client: Redis) -> None:
    first = make_queue().submit("process", 1, idempotency_key="k", priority="low")
    for key in redis_client.keys(f"{keys.prefix}firmq:types*"):
        redis_client.delete(key)
    again = make_queue(patience=0).submit("process", 1, idempotency_key="k", priority="low")
    assert again == first


def test_limits_are_those_of_the_settings(make_queue: MakeQueue) -> None:
    queue = make_queue(patience=0, max_queue_length=1, max_body_bytes=1024, max_json_depth=5, default_priority="low")
    assert queue.submit("process", 1).queue == "low"
    for data, words in ((1, "is full"), ("x" * 1100, "MAX_BODY_BYTES"), ([[[[[]]]]], "nested more than 5")):
        with pytest.raises(Problem, match=words):
            queue.submit("process", data)


@pytest.mark.parametrize("data", [{1: 2}, (1, "a"), {"when": None}], ids=str)
def test_data_is_validated_as_it_is_written(queue: Any, redis_client: Redis, data: Any) -> None:
    assert queue.submit("process", data).status == "pending"


@pytest.mark.parametrize("data", [object(), float("nan"), {"at": LATER}], ids=("object", "nan", "datetime"))
def test_data_that_json_lacks_is_an_error_of_the_caller(queue: Any, data: Any) -> None:
    with pytest.raises((TypeError, ValueError)):
        queue.submit("process", data)


def test_half_a_surrogate_pair_is_refused(queue: Any) -> None:
    with pytest.raises(Refused, match="surrogate pair"):
        queue.submit("process", {"text": "\ud800"})


def test_methods_and_options_are_those_of_the_client() -> None:
    import inspect

    from firmq import AsyncQueue, Queue

    for kind in (Queue, AsyncQueue):
        for name in ("submit", "get", "wait", "result", "cancel"):
            assert inspect.signature(getattr(kind, name)) == inspect.signature(getattr(Client, name)), name
