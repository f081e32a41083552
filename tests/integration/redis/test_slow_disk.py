"""kill -9 of Redis loses nothing that was accepted, however slow its disk is."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from firmq.shared.errors import TaskNotFound
from firmq.shared.local.embedded_redis import EmbeddedRedis
from firmq.shared.redis.client import connect
from tests.integration.redis.load import Callers, start_gateway
from tests.labs.faults.slow_disk import HeldFsync
from tests.support.figures import judge
from tests.support.harness import System, free_port, running_system, wait_until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="an fsync is held by a means of Linux")

SLOW = 0.4


@pytest.fixture
def server(tmp_path: Path) -> Iterator[EmbeddedRedis]:
    """As it is shipped."""
    with EmbeddedRedis(data_dir=tmp_path / "data", port=free_port()) as running:
        yield running


@pytest.fixture
def slow_system(server: EmbeddedRedis, tmp_path: Path) -> Iterator[System]:
    with connect(server.url, timeout=5) as client, running_system(client, server.url, tmp_path) as running:
        running.start_worker(WORKER_EXECUTORS="2")
        yield running


def postponed(system: System) -> bool:
    """Whether Redis holds back what it has answered."""
    info = system.redis.info("persistence")
    return bool(info["aof_pending_bio_fsync"] and info["aof_buffer_length"])


def stored(system: System, task_id: str) -> bool:
    try:
        system.records.state(task_id)
    except TaskNotFound:
        return False
    return True


def more_than(callers: Callers, number: int) -> bool:
    return len(callers.accepted) > number


def test_a_killed_redis_with_a_slow_disk_loses_no_accepted_task(server: EmbeddedRedis, slow_system: System) -> None:
    port = free_port()
    start_gateway(slow_system, port)
    with Callers(port, {"type": "noop", "data": None}) as callers:
        for times in (1, 2):
            wait_until(partial(more_than, callers, 20 * times), "the load goes on")
            held = HeldFsync(server.pid or 0)
            wait_until(lambda: postponed(slow_system), "Redis postpones its writes")
            time.sleep(SLOW)
            held.let_go()
        held = HeldFsync(server.pid or 0)
        wait_until(lambda: postponed(slow_system), "Redis postpones its writes")
        told = len(callers.told)
        wait_until(lambda: postponed(slow_system) and len(callers.told) > told + 3, "callers are answered meanwhile")
        held.kill_server()
    server.start()
    lost = [each for each in callers.accepted if not stored(slow_system, each.task_id)]
    assert set(callers.statuses) <= {202, 503}
    assert not lost, f"{len(lost)} of {len(callers.accepted)} are lost"
    judge("the slowest answer beside a slow disk", max(each.seconds for each in callers.told), 3)
