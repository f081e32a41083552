"""kill -9 of Redis loses nothing that was accepted, however slow its disk is."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from shared.errors import TaskNotFound
from shared.local.embedded_redis import EmbeddedRedis
from shared.local.server_binary import choose_server
from shared.redis_client import connect
from tests.harness import System, free_port, running_system, wait_until
from tests.integration.redis_modes.load import Callers, start_gateway
from tests.slow_disk import SUPPORTED, SlowDisk

pytestmark = pytest.mark.skipif(not SUPPORTED, reason="fsyncs are made slow by a means of Linux")


@pytest.fixture
def disk() -> Iterator[SlowDisk]:
    with SlowDisk(choose_server()) as slow:
        yield slow


@pytest.fixture
def server(disk: SlowDisk, tmp_path: Path) -> Iterator[EmbeddedRedis]:
    """As it is shipped, but for its disk."""
    with EmbeddedRedis(data_dir=tmp_path / "data", server=disk.binary) as running:
        yield running
        disk.seconds = 0


@pytest.fixture
def slow_system(server: EmbeddedRedis, tmp_path: Path) -> Iterator[System]:
    with connect(server.url, timeout=5) as client, running_system(client, server.url, tmp_path) as running:
        running.start_worker()
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


@pytest.mark.parametrize("seconds", [0.4, 60])
def test_what_was_accepted_outlives_a_redis_that_is_killed_while_its_disk_is_slow(
    disk: SlowDisk, server: EmbeddedRedis, slow_system: System, seconds: float
) -> None:
    port = free_port()
    start_gateway(slow_system, port)
    with Callers(port, {"type": "noop", "data": None}) as callers:
        wait_until(lambda: len(callers.accepted) > 20, "the load runs")
        disk.seconds = seconds
        wait_until(lambda: postponed(slow_system), "Redis postpones its writes")
        before = len(callers.told)
        wait_until(lambda: postponed(slow_system) and len(callers.told) > before + 3, "callers were answered meanwhile")
        server.kill()
    disk.seconds = 0
    server.start()
    lost = [each for each in callers.accepted if not stored(slow_system, each.task_id)]
    assert set(callers.statuses) <= {202, 503}
    assert not lost, f"{len(lost)} of {len(callers.accepted)} are lost"
    assert max(each.seconds for each in callers.told) < 3
