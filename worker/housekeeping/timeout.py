"""timeout: ends attempts whose lease ran out, and drops workers that have fallen silent."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from datetime import timedelta

from shared.locks import HeldLock
from shared.scripts import Scripts
from shared.workers import Workers
from worker.housekeeping.jobs import until_done

log = logging.getLogger(__name__)

BATCH = 200
ROUNDS = 50


class Timeout:
    """What a dead worker held runs again, or is dead-lettered as a poison task."""

    name = "timeout"

    def __init__(
        self, scripts: Scripts, workers: Workers, queues: Sequence[str], interval: timedelta, max_crashes: int
    ) -> None:
        self.scripts = scripts
        self.workers = workers
        self.queues = queues
        self.interval = interval
        self.max_crashes = max_crashes

    def run(self, held: HeldLock) -> int:
        ended = until_done(held, lambda: self._reap(held), BATCH, ROUNDS)
        self.workers.reap(self.queues)
        return ended

    def _reap(self, held: HeldLock) -> int:
        reaped = self.scripts.reap(BATCH, self.max_crashes, held.permit)
        for task_id, task_type, _, worker, state, _ in reaped:
            log.warning("task %s (%s): the lease of worker %s ended; it is %s now", task_id, task_type, worker, state)
        return len(reaped)
