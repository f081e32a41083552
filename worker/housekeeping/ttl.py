"""ttl: expires tasks too old to start, and removes what is past its retention."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import timedelta

from shared.clock import to_us
from shared.scripts import Scripts
from shared.tasks import TaskState

BATCH = 200
ROUNDS = 50


class Ttl:
    """Nothing that waits longer than it may, nothing that is kept longer than it should."""

    name = "ttl"

    def __init__(self, scripts: Scripts, retention: Mapping[TaskState, timedelta], interval: timedelta) -> None:
        self.scripts = scripts
        self.retention = retention
        self.interval = interval

    def run(self) -> int:
        done = _until_done(lambda: self.scripts.expire(BATCH))
        for state, age in self.retention.items():
            done += self._prune(state, to_us(age))
        return done

    def _prune(self, state: TaskState, age_us: int) -> int:
        return _until_done(lambda: self.scripts.prune(state, age_us, BATCH))


def _until_done(step: Callable[[], int]) -> int:
    """Repeats a batch until it finds less than it could take, or for a bounded number of times."""
    total = 0
    for _ in range(ROUNDS):
        count = step()
        total += count
        if count < BATCH:
            break
    return total
