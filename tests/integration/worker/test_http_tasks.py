"""Tasks of the type `http` in a real worker: retries, time limits, cancels, and many at a time."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from redis import Redis

from firmq.shared.domain.task import Outcome, TaskDetail, TaskState
from firmq.shared.stores.task_types import TaskTypes
from tests.support import one_slot
from tests.support.figures import judge_since
from tests.support.harness import System, running_system, wait_until
from tests.support.receiver import Receiver, receiving

S = TaskState
ALLOWED = {"HTTP_TASK_HOSTS": "127.0.0.1", "HTTP_TASK_ALLOW": "127.0.0.0/8"}


@pytest.fixture(scope="module")
def working(tmp_path_factory: pytest.TempPathFactory) -> Iterator[System]:
    with (
        one_slot.own_server(tmp_path_factory.mktemp("redis")) as server,
        one_slot.client_of(server) as redis,
        running_system(redis, one_slot.url_of(server), tmp_path_factory.mktemp("logs"), **ALLOWED) as running,
    ):
        running.start_worker()
        running.start_housekeeper()
        yield running


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as there:
        yield there


@pytest.fixture
def silent() -> Iterator[socket.socket]:
    """A server that takes connections and never answers."""
    with socket.create_server(("127.0.0.1", 0), backlog=200) as server:
        yield server


def submit(system: System, url: str, about: dict[str, Any] | None = None, **options: Any) -> str:
    return system.submit("http", json.dumps({"url": url, **(about or {})}), **options)


def url_of(server: socket.socket) -> str:
    return f"http://127.0.0.1:{server.getsockname()[1]}/"


def outcomes(task: TaskDetail) -> list[str]:
    return [str(each.outcome) for each in task.attempts]


def test_a_call_is_made_and_its_answer_is_the_result(working: System, receiver: Receiver) -> None:
    receiver.answers = [(200, {"Content-Type": "application/json"}, b'{"paid": true}')]
    task = submit(working, receiver.url, {"body": {"order": 7}, "headers": {"Authorization": "Bearer x"}})
    done = working.ended(task)
    assert done.result == {"status": 200, "headers": {"content-type": "application/json"}, "body": {"paid": True}}
    [(headers, body)] = receiver.got
    assert json.loads(body) == {"order": 7}
    assert (headers["authorization"], headers["idempotency-key"]) == ("Bearer x", task)


def test_retries_have_the_same_idempotency_key_and_refusals_are_final(working: System, receiver: Receiver) -> None:
    receiver.answers = [(500, {}, b""), (429, {"Retry-After": "0"}, b""), (404, {}, b"gone")]
    dead = working.ended(submit(working, receiver.url))
    assert (dead.summary.state, outcomes(dead)) == (S.FAILED, ["failed"] * 3)
    assert "answered 404: 'gone'" in str(dead.summary.error)
    assert len({headers["idempotency-key"] for headers, _ in receiver.got}) == 1


def test_a_time_limit_ends_the_call_and_is_retried(working: System, silent: socket.socket) -> None:
    task = submit(working, url_of(silent), timeout=timedelta(seconds=0.3), retry={"max_retries": 1})
    dead = working.ended(task)
    assert outcomes(dead) == [Outcome.TIMED_OUT] * 2
    for _ in dead.attempts:
        with silent.accept()[0] as connection:
            connection.settimeout(10)
            while connection.recv(1 << 16):  # the request, then the end of the connection
                pass


def test_a_cancel_ends_the_call_and_no_other(working: System, receiver: Receiver, silent: socket.socket) -> None:
    working.ended(submit(working, receiver.url))
    [pid] = [executor for worker in working.processes[:1] for executor in working.executors(worker, "concurrent")]
    cancelled, other = submit(working, url_of(silent)), submit(working, url_of(silent))
    with silent.accept()[0], silent.accept()[0]:
        wait_until(lambda: working.records.state(cancelled) is S.RUNNING, "it runs")
        asked = time.monotonic()
        working.queues.cancel(cancelled, "not needed")
        assert working.ended(cancelled).summary.state is S.CANCELLED
        judge_since("to cancel a call", asked, 5)
        assert working.records.state(other) is S.RUNNING
        assert working.executors(working.processes[0], "concurrent") == [pid], "the executor stays"
        working.queues.cancel(other, "not needed")
        working.ended(other)


def test_slow_servers_are_waited_for_side_by_side(working: System, silent: socket.socket) -> None:
    ids = working.submit_many([("http", json.dumps({"url": url_of(silent)}))] * 60)
    connections = [silent.accept()[0] for _ in ids]
    for each in connections:
        each.sendall(b"HTTP/1.1 204 No Content\r\n\r\n")
        each.close()
    assert {working.ended(each).summary.state for each in ids} == {S.COMPLETED}


def test_the_worker_checks_addresses_again(system: System, receiver: Receiver) -> None:
    system.start_worker(HTTP_TASK_HOSTS="*")
    for url in (receiver.url, "http://10.0.0.1/", "http://[::1]/", "http://localhost/"):
        dead = system.ended(submit(system, url))
        assert (dead.summary.state, len(dead.attempts)) == (S.FAILED, 1)
        assert "must not be called" in str(dead.summary.error)
    assert not receiver.got


def test_without_hosts_no_worker_offers_the_type(system: System) -> None:
    system.start_worker()
    types = TaskTypes(system.redis)
    types.refresh()
    assert "http" not in types.names()
    assert "noop" in types.names()


def test_calls_run_one_at_a_time_without_concurrent_executors(system: System, receiver: Receiver) -> None:
    system.start_worker(**ALLOWED, CONCURRENT_EXECUTORS="0")
    assert system.ended(submit(system, receiver.url)).result["status"] == 204


@pytest.fixture
def system(redis_client: Redis, redis_url: str, tmp_path: Path) -> Iterator[System]:
    with running_system(redis_client, redis_url, tmp_path) as running:
        yield running
