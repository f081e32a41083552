"""A worker lives when it claims and reports: real workers, of which one part stops, or whose Redis is away."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from redis import Redis

from firmq.shared.conditions.conditions import Alert, alerts
from firmq.shared.conditions.observation import Observer
from firmq.shared.config.settings import Settings
from firmq.shared.local.embedded_redis import EmbeddedRedis
from tests.support.harness import QUICK, ROOT, System, free_port, running_system, wait_until


def ask(port: int, path: str) -> tuple[int, dict[str, Any]]:
    """Status and answer of a probe; 0 when nobody listens."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=60) as answer:
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
    ("part", "words"), [("loop", "loop"), ("claiming", "claimed"), ("heartbeat", "sent no heartbeat")]
)
def test_a_worker_of_which_a_part_is_stuck_is_dead_although_its_process_lives(
    system: System, part: str, words: str
) -> None:
    process, port = start(system, part)
    system.ended(system.submit("process", '"a b"'))
    assert ask(port, "/health/live")[0] == 200
    process.send_signal(signal.SIGUSR1)
    wait_until(lambda: ask(port, "/health/live")[0] == 503, "it counts as dead")
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


def stuck(system: System) -> list[Alert]:
    """The alerts about workers that cannot run tasks."""
    now = Observer(system.scripts, Settings()).glance()
    return [each for each in alerts(now) if each.name == "FirmqWorkerStuck"]


def test_a_worker_whose_executors_of_one_kind_cannot_start_says_so_and_recovers(
    redis_client: Redis, redis_url: str, tmp_path: Path
) -> None:
    handlers = tmp_path / "shop_handlers.py"
    good = (
        "from firmq import task\n"
        "@task('now')\ndef now() -> int: return 1\n"
        "@task('later')\nasync def later() -> int: return 2\n"
    )
    handlers.write_text(good)
    port = free_port()
    with running_system(redis_client, redis_url, tmp_path, TASK_MODULES="shop_handlers") as system:
        worker = system.start_worker(
            PYTHONPATH=str(tmp_path), WORKER_METRICS_PORT=str(port), WORKER_EXECUTORS="1", PYTHONDONTWRITEBYTECODE="1"
        )
        assert system.ended(system.submit("later", "{}")).result == 2
        wait_until(lambda: ask(port, "/health/ready")[0] == 200, "the worker is ready")
        handlers.write_text(good + "import no_such_module\n")
        [executor] = system.executors(worker, "serial")
        os.kill(executor, signal.SIGKILL)
        wait_until(lambda: ask(port, "/health/ready")[0] == 503, "the worker is not ready", 60)
        wait_until(lambda: "serial executors end" in ask(port, "/health/ready")[1]["state"], "it says why", 60)
        wait_until(lambda: stuck(system), "its record says why", 30)
        [alert] = stuck(system)
        assert "its serial executors end before they are ready" in alert.title
        assert worker.poll() is None
        assert system.ended(system.submit("later", "{}")).result == 2
        waiting = system.submit("now", "{}")
        handlers.write_text(good)
        assert system.ended(waiting).result == 1
        wait_until(lambda: ask(port, "/health/ready")[0] == 200, "the worker is ready again")
        wait_until(lambda: not stuck(system), "its record says so", 30)


def test_a_worker_that_may_open_too_few_files_ends_with_the_reason(system: System) -> None:
    system.as_shipped = True
    command = ["sh", "-c", 'ulimit -n 12; exec "$0" -m firmq worker', sys.executable]
    environment = {**os.environ, **QUICK, "REDIS_URL": system.url, "WORKER_METRICS_PORT": "0"}
    done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2, done.stderr
    assert "may open 12 files only" in done.stderr + done.stdout
