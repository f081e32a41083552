"""Redis goes away, hangs, and comes back: a 503 in time, nothing half-written, and no help needed afterwards."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from flask.testing import FlaskClient

from firmq.gateway.circuit_breaker import PAUSE, CircuitBreaker
from firmq.shared.errors import StoreRefused, StoreUnavailable
from firmq.shared.local.embedded_redis import EmbeddedRedis
from firmq.shared.stores.pauses import Pauses
from tests.integration.gateway.driving import Gateway, problem
from tests.support.figures import judge, judge_since
from tests.support.harness import wait_until

NEW = {"type": "process", "data": 1}
LIMIT = 2.0
REQUESTS = [
    ("POST", "/tasks"),
    ("GET", "/tasks"),
    ("GET", "/tasks/some-id"),
    ("DELETE", "/tasks/some-id"),
    ("GET", "/tasks/some-id/result"),
    ("GET", "/tasks/some-id/result?wait=30"),
    ("GET", "/dlq/failed-tasks"),
    ("POST", "/dlq/failed-tasks/some-id/retry"),
    ("DELETE", "/dlq/failed-tasks/some-id"),
    ("GET", "/workers"),
    ("GET", "/queues"),
    ("POST", "/queues/high/resume"),
]


@pytest.fixture
def frozen(redis_server: EmbeddedRedis, gateway: Gateway) -> Iterator[Gateway]:
    """A gateway that has worked, whose Redis then hangs: connections are taken and nothing is answered."""
    gateway.submit()
    assert redis_server.pid
    os.kill(redis_server.pid, signal.SIGSTOP)
    try:
        yield gateway
    finally:
        os.kill(redis_server.pid, signal.SIGCONT)


def refused_in_time(http: FlaskClient, method: str, path: str) -> None:
    begun = time.monotonic()
    answer = http.open(path, method=method, json=NEW if path == "/tasks" and method == "POST" else None)
    judge_since(f"{method} {path} while Redis hangs", begun, LIMIT)
    problem(answer, 503, "store-unavailable")
    assert int(answer.headers["Retry-After"]) >= 1


@pytest.mark.parametrize(("method", "path"), REQUESTS)
def test_every_address_answers_503_in_time_while_redis_hangs(frozen: Gateway, method: str, path: str) -> None:
    refused_in_time(frozen.http, method, path)


def test_without_redis_everything_is_refused_and_after_it_everything_works(
    redis_server: EmbeddedRedis, gateway: Gateway
) -> None:
    kept = gateway.submit()
    redis_server.stop()
    try:
        for method, path in REQUESTS:
            refused_in_time(gateway.http, method, path)
        for path in ("/health", "/health/ready"):
            answer = gateway.http.get(path)
            assert answer.status_code == 503
            assert answer.get_json()["redis"]["reachable"] is False
        for path in ("/health/live", "/metrics", "/docs", "/openapi.json", "/"):
            assert gateway.http.get(path).status_code == 200
    finally:
        redis_server.start()
    # A slow refusal on a busy machine opens the breaker, which looks again within a second.
    wait_until(lambda: gateway.http.get(f"/tasks/{kept}").status_code == 200, "it works again")
    assert gateway.submit()
    assert len(gateway.http.get("/tasks").get_json()["items"]) == 2


def told(gateway: Gateway, method: str, path: str) -> str:
    answer = gateway.http.open(path, method=method, json=NEW if path == "/tasks" and method == "POST" else None)
    assert answer.status_code == 503
    return str(answer.get_json()["detail"])


@pytest.mark.parametrize(("method", "path"), [("POST", "/tasks"), ("POST", "/queues/high/resume")])
def test_what_was_sent_and_not_answered_may_have_been_done_and_what_was_not_sent_has_not(
    frozen: Gateway, method: str, path: str
) -> None:
    assert "may have taken effect" in told(frozen, method, path)
    # Now it is the breaker that refuses, or a connection that is not there yet.
    assert told(frozen, method, path).endswith("Nothing was changed")
    assert "done" not in told(frozen, "GET", "/tasks")


def test_a_refused_connection_means_nothing_was_changed(redis_server: EmbeddedRedis, gateway: Gateway) -> None:
    gateway.submit()
    redis_server.stop()
    try:
        assert told(gateway, "POST", "/tasks").endswith("Nothing was changed")
        assert "changed" not in told(gateway, "GET", "/tasks")
    finally:
        redis_server.start()


def test_what_one_step_did_is_not_denied_when_the_next_cannot_be_sent(
    redis_server: EmbeddedRedis, gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A connection is refused, but behind a step that was done."""
    pause = Pauses.pause

    def and_then_redis_dies(self: Pauses, *arguments: str, **more: Any) -> None:
        pause(self, *arguments, **more)
        redis_server.stop()
        self.types()

    monkeypatch.setattr(Pauses, "pause", and_then_redis_dies)
    try:
        answer = gateway.http.post("/queues/high/pause", json={"reason": "x"})
        assert "may have taken effect" in answer.get_json()["detail"]
    finally:
        redis_server.start()


def slowest_of_many(gateway: Gateway, path: str) -> float:
    """Seconds until the last of 100 requests on few threads is answered."""
    gate = threading.Semaphore(4)
    times = []

    def ask() -> None:
        begun = time.monotonic()
        with gate:
            assert gateway.app.test_client().get(path).status_code == 503
        times.append(time.monotonic() - begun)

    crowd = [threading.Thread(target=ask) for _ in range(100)]
    for each in crowd:
        each.start()
    for each in crowd:
        each.join()
    assert len(times) == 100
    return max(times)


@pytest.mark.parametrize("path", ["/queues", "/health/ready"])
def test_many_requests_are_refused_in_time(frozen: Gateway, path: str) -> None:
    """If each waited for the time-out in its turn, the last would wait a minute."""
    slowest = slowest_of_many(frozen, path)
    judge("the last of 100 requests while Redis hangs", slowest, 5 * LIMIT)
    assert slowest < 20 * LIMIT


def test_a_redis_that_hung_is_used_again_by_itself(redis_server: EmbeddedRedis, gateway: Gateway) -> None:
    gateway.submit()
    assert redis_server.pid
    os.kill(redis_server.pid, signal.SIGSTOP)
    try:
        refused_in_time(gateway.http, "POST", "/tasks")
    finally:
        os.kill(redis_server.pid, signal.SIGCONT)
    wait_until(lambda: gateway.http.get("/tasks").status_code == 200, "the gateway works again")
    # The refused submission may have reached the server that hung, but not half of it.
    tasks = gateway.http.get("/tasks").get_json()["items"]
    assert len(tasks) in (1, 2)
    assert sum(queue["pending"] for queue in gateway.http.get("/queues").get_json()["items"]) == len(tasks)


# --- the breaker by itself ---


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def fail(
    breaker: CircuitBreaker, clock: Clock, seconds: float, error: type[StoreUnavailable] = StoreUnavailable
) -> None:
    def ask() -> None:
        clock.now += seconds
        raise error("gone")

    with pytest.raises(StoreUnavailable):
        through(breaker, ask)


def passes(breaker: CircuitBreaker) -> bool:
    try:
        through(breaker, lambda: None)
    except StoreUnavailable:
        return False
    return True


def through(breaker: CircuitBreaker, ask: Callable[[], None]) -> None:
    with breaker.guarding():
        ask()


def test_after_a_slow_failure_others_are_spared_and_then_one_looks() -> None:
    clock = Clock()
    breaker = CircuitBreaker(clock)
    fail(breaker, clock, 0.9)
    assert not passes(breaker)
    clock.now += PAUSE
    with breaker.guarding():
        assert not passes(breaker)
    assert passes(breaker)


def test_quick_failures_and_refusals_keep_the_circuit_closed() -> None:
    clock = Clock()
    breaker = CircuitBreaker(clock)
    fail(breaker, clock, 0.01)
    assert passes(breaker)
    fail(breaker, clock, 0.9, StoreRefused)
    assert passes(breaker)


def test_a_look_that_fails_keeps_the_others_out() -> None:
    clock = Clock()
    breaker = CircuitBreaker(clock)
    fail(breaker, clock, 0.9)
    clock.now += PAUSE
    fail(breaker, clock, 0.9)
    assert not passes(breaker)


def test_a_look_that_never_returns_does_not_keep_the_others_out_for_ever() -> None:
    clock = Clock()
    breaker = CircuitBreaker(clock)
    fail(breaker, clock, 0.9)
    clock.now += PAUSE
    breaker.guarding().__enter__()
    clock.now += 2.0
    assert passes(breaker)
