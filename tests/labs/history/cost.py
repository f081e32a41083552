"""What the feeding of the history costs a drain: rounds with and without it, in turn, on the settings that ship."""

from __future__ import annotations

import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from firmq.shared.domain.task import TaskState
from firmq.shared.local.embedded_redis import EmbeddedRedis
from firmq.shared.redis.client import connect
from tests.labs.history.postgresql import PostgreSQL
from tests.support.harness import running_system, wait_until
from tests.support.history import Contents
from tests.support.keys import keys

SHIPPED = {
    "LEASE_TIME": "",
    "HOUSEKEEPER_UNLOCK_INTERVAL": "",
    "HOUSEKEEPER_TIMEOUT_INTERVAL": "",
    "HOUSEKEEPER_RECOVERY_INTERVAL": "",
    "HOUSEKEEPER_RECOVERY_GRACE": "",
    "WORKER_EXECUTORS": "2",
}
"""The harness sets quick ones; an empty setting has its default."""


@dataclass(frozen=True, slots=True)
class Drain:
    """How quickly the tasks of a round were completed, in tasks a second, and how long after them the last row came."""

    rate: float
    late: float = 0.0


def measure(tasks: int, rounds: int, server: PostgreSQL) -> list[tuple[Drain, Drain]]:
    """Returns the drains without and with the history, round by round."""
    drain(min(tasks, 5000), "")  # what the first one reads from disk is not charged to it
    return [(drain(tasks, ""), drain(tasks, server.url)) for _ in range(rounds)]


def drain(tasks: int, history: str) -> Drain:
    """Completes empty tasks, whose rows go to the database `history` unless that is ""."""
    with (
        tempfile.TemporaryDirectory(prefix="history-") as name,
        EmbeddedRedis(data_dir=Path(name) / "redis") as redis,
        connect(redis.url, timeout=5) as client,
        running_system(client, redis.url, Path(name), HISTORY_URL=history, **SHIPPED) as system,
    ):
        system.as_shipped = True
        system.start_housekeeper()
        wait_until(lambda: client.exists(keys.HISTORY) or not history, "ends are registered")
        before = rows(history)
        for _ in range(tasks // 1000):
            system.submit_many([("noop", "null")] * 1000)
        system.start("worker")

        def completed() -> int:
            return system.records.counts()[TaskState.COMPLETED]

        wait_until(completed, "the first task is completed")
        first, began = completed(), time.monotonic()
        while (done := completed()) < tasks:
            time.sleep(0.01)
        ended = time.monotonic()
        if history:
            wait_until(lambda: rows(history) == before + tasks, "all rows are there", 300)
        return Drain((done - first) / (ended - began), time.monotonic() - ended)


def rows(history: str) -> int:
    """Returns how many completed tasks the database knows; 0 without one."""
    if not history:
        return 0
    contents = Contents(history)
    try:
        return contents.total(TaskState.COMPLETED) if contents.exist() else 0
    finally:
        contents.engine.dispose()
