"""ttl: expires tasks too old to start, and removes what is past its retention."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta

from shared.clock import to_us
from shared.locks import HeldLock
from shared.scripts import Scripts
from shared.tasks import TaskState
from worker.housekeeping.jobs import until_done

BATCH = 200
ROUNDS = 50


class Ttl:
    """Nothing that waits longer than it may, nothing that is kept longer than it should."""

    name = "ttl"

    def __init__(self, scripts: Scripts, retention: Mapping[TaskState, timedelta], interval: timedelta) -> None:
        self.scripts = scripts
        self.retention = retention
        self.interval = interval

    def run(self, held: HeldLock) -> int:
        done = until_done(held, lambda: self.scripts.expire(BATCH, held.permit), BATCH, ROUNDS)
        return done + sum(self._prune(state, age, held) for state, age in self.retention.items())

    def _prune(self, state: TaskState, age: timedelta, held: HeldLock) -> int:
        return until_done(held, lambda: self.scripts.prune(state, to_us(age), BATCH, held.permit), BATCH, ROUNDS)
