"""A request sent again with its Idempotency-Key: the first answer, and nothing done twice, whoever dies in between."""

from __future__ import annotations

import json
import os
import signal
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from flask.testing import FlaskClient
from redis import Redis
from werkzeug.test import TestResponse

from firmq.shared.config.settings import Settings
from firmq.shared.errors import StoreUnavailable
from firmq.shared.redis.client import text
from firmq.shared.redis.linker import source
from firmq.shared.redis.scripts import Scripts, digest
from firmq.shared.stores import maintenance
from firmq.shared.stores.idempotency import SILENCE, Begun, Idempotency, Request, task_id
from firmq.shared.stores.queues import CHUNK, Queues
from tests.integration.gateway.conftest import TYPES, MakeGateway
from tests.integration.gateway.driving import Gateway, problem
from tests.integration.gateway.test_server import Running, serves
from tests.support.harness import System, free_port, wait_until
from tests.support.keys import keys
from tests.support.relay import SpanForwarder

NEW = {"type": "process", "data": {"a": 1, "b": 2}}
KEY = '"8e03978e-40d5-43e8-bc93-6894a57f9324"'


def post(http: FlaskClient, body: Any = NEW, key: str = KEY, path: str = "/tasks") -> TestResponse:
    return http.post(path, json=body, headers={"Idempotency-Key": key})


def same(first: TestResponse, second: TestResponse) -> bool:
    return (first.status_code, first.data, first.headers.get("Location")) == (
        second.status_code,
        second.data,
        second.headers.get("Location"),
    )


# --- one task ---


def test_the_same_request_is_answered_as_the_first_time_and_says_so(gateway: Gateway) -> None:
    first, second = post(gateway.http), post(gateway.http)
    assert first.status_code == 202
    assert same(first, second)
    assert "Idempotency-Replayed" not in first.headers
    assert second.headers["Idempotency-Replayed"] == "true"
    assert gateway.redis.zcard(keys.TASKS) == 1


def test_the_first_answer_stands_whatever_became_of_the_task(gateway: Gateway) -> None:
    first = post(gateway.http)
    gateway.start()
    gateway.complete(first.get_json()["task_id"])
    assert same(first, post(gateway.http))


def test_members_in_another_order_are_the_same_request(gateway: Gateway) -> None:
    first = post(gateway.http)
    assert same(first, post(gateway.http, {"data": {"b": 2, "a": 1}, "type": "process"}))


def test_quotation_marks_around_the_key_make_no_difference(http: FlaskClient) -> None:
    assert same(post(http, key='"order-7"'), post(http, key="order-7"))


def test_another_body_with_the_same_key_is_refused(http: FlaskClient) -> None:
    post(http)
    problem(post(http, {"type": "process", "data": {"a": 1, "b": 3}}), 422, "idempotency-key-reused")
    problem(post(http, {"tasks": [NEW]}, path="/tasks/batch"), 422, "idempotency-key-reused")


def test_a_refused_request_may_be_mended_and_sent_again_with_its_key(http: FlaskClient) -> None:
    problem(post(http, {"type": "no-such-type", "data": 1}), 422, "unknown-task-type")
    assert post(http).status_code == 202


@pytest.mark.parametrize("key", ["", " ", '""', "k" * 256, 'a"b', "tab\there"])
def test_what_is_no_key_is_refused(http: FlaskClient, key: str) -> None:
    problem(post(http, key=key), 400, "bad-request")


def test_the_answer_is_kept_as_long_as_the_setting_says(make_gateway: MakeGateway) -> None:
    gateway = make_gateway(idempotency_ttl=3600)
    post(gateway.http)
    [key] = gateway.redis.keys(keys.idempotency("*"))
    assert 3590_000 < gateway.redis.pttl(key) <= 3600_000


def test_a_full_queue_is_not_remembered(make_gateway: MakeGateway) -> None:
    gateway = make_gateway(max_queue_length=1)
    blocking = gateway.submit()
    problem(post(gateway.http), 429, "queue-full")
    gateway.http.delete(f"/tasks/{blocking}")
    assert post(gateway.http).status_code == 202


def test_a_hundred_parallel_requests_with_one_key_make_one_task(gateway: Gateway) -> None:
    barrier = threading.Barrier(20)

    def send(number: int) -> list[TestResponse]:
        client = gateway.app.test_client()
        barrier.wait()
        return [post(client) for _ in range(5)]

    with ThreadPoolExecutor(20) as pool:
        answers = [answer for several in pool.map(send, range(20)) for answer in several]
    assert len(answers) == 100
    assert all(same(answers[0], each) for each in answers)
    assert [each.headers.get("Idempotency-Replayed") for each in answers].count(None) == 1
    assert gateway.redis.zcard(keys.TASKS) == 1


def test_the_command_sent_twice_by_the_client_is_not_said_to_be_a_repetition(redis_client: Redis) -> None:
    scripts = Scripts(redis_client)
    task = ("id-1", "normal", "process", "[]", "", "", "", "", "")
    for name in ("submit_one_once", "submit_once"):
        redis_client.flushall()
        answers = [scripts.call(name, "d", "f", 1000, 0, *task) for _ in range(2)]
        assert answers == [[b"stored", b"id-1", b"pending"]] * 2


# --- the gateway dies between storing and answering ---


SUBMITTING = ("submit_one_once+", "submit+")
"""The scripts by which a gateway stores tasks."""


class Swallowing(SpanForwarder):
    """Keeps back what the server answers to a submission."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.stored = threading.Event()
        self._deaf: set[socket.socket] = set()

    def _forward(self, source: socket.socket) -> None:
        if source in self._deaf:
            source.recv(65536)
            self.stored.set()
            return
        peeked = source.recv(65536, socket.MSG_PEEK)
        if any(digest(name, keys).encode() in peeked for name in SUBMITTING):
            self._deaf.add(self._peers[source])
        super()._forward(source)


@pytest.fixture
def swallowing(redis_url: str) -> Iterator[Swallowing]:
    relay = Swallowing(redis_url)
    yield relay
    relay.stop()


def start(system: System, **environment: str) -> Running:
    port = free_port()
    gateway = Running(system.start("gateway", GATEWAY_PORT=str(port), GATEWAY_PROCESSES="2", **environment), port)
    wait_until(lambda: serves(gateway), f"the gateway serves\n{system.logs()}")
    return gateway


def kill(gateway: Running) -> None:
    for pid in (gateway.process.pid, *gateway.workers):
        os.kill(pid, signal.SIGKILL)
    gateway.process.wait()


@pytest.mark.parametrize(("path", "body"), [("/tasks", NEW), ("/tasks/batch", {"tasks": [NEW, NEW]})])
def test_killed_between_storing_and_answering_it_is_still_one(
    system: System, gateway: Gateway, swallowing: Swallowing, path: str, body: Any
) -> None:
    for name in SUBMITTING:
        system.scripts.redis.script_load(source(name, keys))
    first = start(system, REDIS_URL=swallowing.url)
    sent = json.dumps(body).encode()

    def send() -> None:
        with pytest.raises((ConnectionError, TimeoutError)):
            first.ask("POST", path, sent, **{"Idempotency-Key": KEY})

    sender = threading.Thread(target=send)
    sender.start()
    assert swallowing.stored.wait(60), "the task was stored and the answer kept back"
    kill(first)
    sender.join(60)
    stored = system.redis.zrange(keys.TASKS, 0, -1)

    answer: TestResponse = wait_until(
        lambda: next((each for each in [post(gateway.http, body, path=path)] if each.status_code == 202), None),
        "the key of the dead request is free again",
        SILENCE.total_seconds() + 60,
    )
    told = answer.get_json()
    ids = [item["task_id"] for item in told.get("items", [told])]
    assert sorted(ids) == sorted(text(each) for each in stored)
    assert system.redis.zcard(keys.TASKS) == len(ids)


# --- many tasks ---


def test_a_batch_sent_again_is_answered_as_the_first_time(gateway: Gateway) -> None:
    body = {"tasks": [NEW, {"type": "nonsense", "data": 1}, NEW]}
    first, second = (post(gateway.http, body, path="/tasks/batch") for _ in range(2))
    assert first.status_code == 207
    assert first.get_json() == second.get_json()
    assert second.headers["Idempotency-Replayed"] == "true"
    assert gateway.redis.zcard(keys.TASKS) == 2


def test_a_batch_that_is_still_at_work_is_a_conflict(gateway: Gateway) -> None:
    idempotency = Idempotency(gateway.scripts, SILENCE)
    body = {"tasks": [NEW]}
    content = json.dumps(body, sort_keys=True, separators=(",", ":")).encode()
    begun = idempotency.begin(Request.of("", KEY.strip('"'), "/tasks/batch", content))
    assert isinstance(begun, Begun)
    answer = post(gateway.http, body, path="/tasks/batch")
    problem(answer, 409, "request-in-progress")
    assert 1 <= int(answer.headers["Retry-After"]) <= SILENCE.total_seconds()
    idempotency.forget(begun)
    assert post(gateway.http, body, path="/tasks/batch").status_code == 202


def test_an_interrupted_batch_continues_where_it_stopped(gateway: Gateway, monkeypatch: pytest.MonkeyPatch) -> None:
    body = {"tasks": [NEW] * (CHUNK * 3)}
    working = Queues.submit
    calls = iter(range(10))

    def fails_in_the_middle(self: Queues, tasks: Any) -> Any:
        if next(calls) == 1:
            raise StoreUnavailable
        return working(self, tasks)

    monkeypatch.setattr(Queues, "submit", fails_in_the_middle)
    cut = post(gateway.http, body, path="/tasks/batch")
    assert cut.get_json()["accepted"] == CHUNK
    monkeypatch.setattr(Queues, "submit", working)
    [key] = gateway.redis.keys(keys.idempotency("*"))
    gateway.redis.hset(key, "until", 1)  # the silence is over
    whole = post(gateway.http, body, path="/tasks/batch")
    assert whole.get_json()["accepted"] == CHUNK * 3
    assert gateway.redis.zcard(keys.TASKS) == CHUNK * 3
    assert same(whole, post(gateway.http, body, path="/tasks/batch"))


def test_what_a_batch_was_refused_for_now_is_tried_again_and_the_rest_is_not(make_gateway: MakeGateway) -> None:
    gateway = make_gateway(max_queue_length=2)
    held = gateway.submit(priority="low", unique_key="one")
    items = [
        {**NEW, "item": "a"},
        NEW,
        {**NEW, "depends_on": [3]},
        NEW,
        {**NEW, "priority": "low", "unique_key": "one"},
    ]
    body = {"tasks": items}
    first = post(gateway.http, body, path="/tasks/batch").get_json()
    problems = [each.get("problem", {}).get("type") for each in first["items"]]
    assert problems == [None, None, "/problems/missing-parent", "/problems/queue-full", "/problems/not-unique"]
    gateway.start()
    gateway.complete(held)
    second = post(gateway.http, body, path="/tasks/batch")
    assert (second.status_code, second.get_json()["accepted"]) == (202, 5)
    assert "Idempotency-Replayed" not in second.headers
    ids = [each["task_id"] for each in second.get_json()["items"]]
    assert ids[:2] == [each["task_id"] for each in first["items"][:2]]
    assert gateway.redis.zcard(keys.TASKS) == 6
    assert same(second, post(gateway.http, body, path="/tasks/batch"))
    problem(post(gateway.http, {"tasks": [NEW]}, path="/tasks/batch"), 422, "idempotency-key-reused")


def test_what_comes_after_a_batch_does_not_wait_for_a_repeat_that_may_never_come(make_gateway: MakeGateway) -> None:
    gateway = make_gateway(max_queue_length=2)
    body = {"tasks": [NEW] * 4, "then": {**NEW, "priority": "low"}}
    first = post(gateway.http, body, path="/tasks/batch").get_json()
    assert (first["accepted"], first["refused"]) == (2, 2)
    for each in gateway.start():
        gateway.complete(each)
    maintenance.run_deferred(gateway.scripts, 100)
    batch = gateway.http.get(f"/batches/{first['batch_id']}").get_json()
    assert batch["status"] == "ended"
    assert gateway.show(batch["then"])["status"] == "pending"
    assert post(gateway.http, body, path="/tasks/batch").get_json()["accepted"] == 4


def test_a_batch_whose_follow_up_finds_a_full_queue_leaves_nothing_however_often_it_is_sent(
    make_gateway: MakeGateway,
) -> None:
    gateway = make_gateway(max_queue_length=1)
    blocking = gateway.submit(priority="low")
    body = {"tasks": [NEW], "then": {**NEW, "priority": "low"}}
    for _ in range(30):
        problem(post(gateway.http, body, path="/tasks/batch"), 429, "queue-full")
    assert gateway.redis.zcard(keys.BATCHES) == 0
    assert gateway.redis.keys(f"{keys.prefix}firmq:batch*") == []
    gateway.http.delete(f"/tasks/{blocking}")
    assert post(gateway.http, body, path="/tasks/batch").status_code == 202
    assert gateway.redis.zcard(keys.BATCHES) == 1


def test_a_repeat_that_is_refused_as_a_whole_leaves_what_is_stored_under_its_key(make_gateway: MakeGateway) -> None:
    gateway = make_gateway(max_queue_length=1)
    body = {"tasks": [NEW, NEW]}
    assert post(gateway.http, body, path="/tasks/batch").get_json()["accepted"] == 1
    gateway.redis.delete(keys.TYPE_SETS)
    bare = make_gateway(types=(), max_queue_length=1)
    problem(post(bare.http, body, path="/tasks/batch"), 503, "no-task-types")
    gateway.start()
    assert post(make_gateway().http, body, path="/tasks/batch").get_json()["accepted"] == 2
    assert gateway.redis.zcard(keys.TASKS) == 2


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/tasks", {**NEW, "priority": "low"}),
        ("/tasks", {**NEW, "priority": "default"}),
        ("/tasks/batch", {"tasks": [NEW]}),
    ],
)
@pytest.mark.parametrize("gone", ["type", "all types", "priority"])
def test_a_repeat_has_its_answer_also_when_it_would_be_refused_by_now(
    make_gateway: MakeGateway, path: str, body: Any, gone: str
) -> None:
    first = post(make_gateway().http, body, path=path)
    assert first.status_code == 202
    redis = make_gateway().redis
    if gone != "priority":
        redis.delete(keys.TYPE_SETS)
    types = () if gone == "all types" else TYPES[1:] if gone == "type" else TYPES
    later = make_gateway(types=types, queues={"normal": 1} if gone == "priority" else Settings().queues)
    again = post(later.http, body, path=path)
    assert same(first, again)
    assert again.headers["Idempotency-Replayed"] == "true"


def test_ids_made_from_a_seed_look_like_all_others_and_differ() -> None:
    ids = {task_id("01HZZZZZZZ-seed", number) for number in range(10_000)}
    assert len(ids) == 10_000
    assert all(len(each) == 26 and each.isalnum() for each in ids)
