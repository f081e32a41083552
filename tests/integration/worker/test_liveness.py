"""A worker lives when it claims and reports: real workers, of which one part stops, or whose Redis is away."""

from __future__ import annotations

import json
import signal
import time
import urllib.error
import urllib.request
from typing import Any

import pytest

from taskqueue.shared.http.bind import free_port
from taskqueue.shared.local.embedded_redis import EmbeddedRedis
from tests.support.harness import System, wait_until


def ask(port: int, path: str) -> tuple[int, dict[str, Any]]:
    """Status and answer of a probe; 0 when nobody listens."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)
    except OSError:
        return 0, {}


def start(system: System, part: str) -> tuple[Any, int]:
    port = free_port()
    process = system.start("tests.support.failing_worker", part, WORKER_METRICS_PORT=str(port), WORKER_EXECUTORS="2")
    wait_until(lambda: ask(port, "/health/ready")[0] == 200, "the worker is ready")
    return process, port


def watched(port: int) -> list[int]:
    """What is said for longer than it has patience."""
    seen = []
    for _ in range(9):
        time.sleep(0.5)
        seen.append(ask(port, "/health/live")[0])
    return seen


@pytest.mark.parametrize(
    ("part", "words"),
    [("loop", "loop"), ("claiming", "claimed"), ("heartbeat", "sent no heartbeat")],
)
def test_a_worker_of_which_a_part_is_stuck_is_dead_although_its_process_lives(
    system: System, part: str, words: str
) -> None:
    process, port = start(system, part)
    system.ended(system.submit("process", '"a b"'))
    assert ask(port, "/health/live")[0] == 200
    process.send_signal(signal.SIGUSR1)
    wait_until(lambda: ask(port, "/health/live")[0] == 503, "it counts as dead", 15)
    assert process.poll() is None
    assert any(words in trouble for trouble in ask(port, "/health/live")[1]["troubles"])
    process.kill()


def test_a_worker_whose_redis_is_away_lives_and_is_not_ready(system: System, redis_server: EmbeddedRedis) -> None:
    _, port = start(system, "loop")
    redis_server.stop()
    try:
        wait_until(lambda: ask(port, "/health/ready")[0] == 503, "it is not ready")
        assert watched(port) == [200] * 9
    finally:
        redis_server.start()
    wait_until(lambda: ask(port, "/health/ready")[0] == 200, "it is ready again")
    assert system.ended(system.submit("process", '"a b"')).summary.state == "completed"


@pytest.mark.parametrize("distributed", ["true", "false"])
def test_a_housekeeper_that_never_reached_redis_is_not_ready(
    system: System, redis_server: EmbeddedRedis, distributed: str
) -> None:
    redis_server.stop()
    try:
        port = free_port()
        system.start_housekeeper(
            HOUSEKEEPER_METRICS_PORT=str(port), HOUSEKEEPER_DISTRIBUTED_EXECUTION_ENABLED=distributed
        )
        status, told = wait_until(lambda: (found := ask(port, "/health/ready"))[0] and found, "it answers")
        assert status == 503
        assert set(told["seconds_since_answer"].values()) == {None}
        assert ask(port, "/health/live")[0] == 200
    finally:
        redis_server.start()
    wait_until(lambda: ask(port, "/health/ready")[0] == 200, "it is ready")


def test_an_idle_worker_and_one_with_all_hands_full_live(system: System) -> None:
    _, port = start(system, "loop")
    for _ in range(2):
        assert watched(port) == [200] * 9
        system.submit_many([("slowly", '{"seconds": 6}')] * 4)
