"""unlock: moves due tasks (retries, run-at) to their queues, ends pauses, and runs deferred work."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

from redis.exceptions import RedisError

from firmq.shared.errors import LockLost
from firmq.shared.failpoints import failpoint
from firmq.shared.redis.scripts import Scripts
from firmq.shared.stores import maintenance
from firmq.shared.stores.audit import Audit
from firmq.shared.stores.locks import HeldLock
from firmq.shared.stores.pauses import Pauses
from firmq.worker.housekeeping.lateness import Lateness
from firmq.worker.housekeeping.registry import RunResult, until_done

log = logging.getLogger(__name__)

BATCH = 200
"""Tasks moved in one step: about 2 ms of Redis. Several queues may be due, and other commands wait behind them."""

ROUNDS = 100
"""Batches of one queue in a row before the others follow."""


class Unlock:
    """Handles queues in parallel; an error in one does not stop the others."""

    name = "unlock"

    def __init__(
        self, scripts: Scripts, queues: Iterable[str], interval: timedelta, parallelism: int, lateness: Lateness
    ) -> None:
        self.scripts = scripts
        self.queues = queues
        self.interval = interval
        self.lateness = lateness
        self.pauses = Pauses(scripts)
        self.audit = Audit(scripts.redis)
        self._pool = ThreadPoolExecutor(max_workers=parallelism, thread_name_prefix="unlock")

    def run(self, held: HeldLock) -> RunResult:
        held.check()
        self._end_pauses()
        known = list(self.queues)
        queues = maintenance.due(self.scripts, known)  # one call; mostly there are none
        answers = list(self._pool.map(lambda queue: self._unlock(queue, held), queues))
        errors = {queue: error for queue, (_, error) in zip(queues, answers, strict=True) if error}
        # A lost lock ends the run for all queues; an error of all queues is an error of the run.
        lost = next((error for error in errors.values() if isinstance(error, LockLost)), None)
        if errors and (lost or len(errors) == len(known)):
            raise lost or errors[queues[0]]
        for queue, error in errors.items():
            log.error("unlock of queue %s failed: %s", queue, error)
        # Claims do this too; here it is for times without claims.
        settled = until_done(
            held, lambda: maintenance.run_deferred(self.scripts, BATCH, held.fencing_token), BATCH, ROUNDS
        )
        return sum((moved for moved, _ in answers), settled)

    def _end_pauses(self) -> None:
        for name in self.pauses.end_due():
            kind, _, task_type = name.rpartition(":")
            self.audit.record("housekeeper", f"resumed {kind or 'queue'}", task_type, "its pause has ended")

    def _unlock(self, queue: str, held: HeldLock) -> tuple[RunResult, Exception | None]:
        moved = 0
        try:
            for _ in range(ROUNDS):
                held.check()
                count, late_us, _ = maintenance.promote(self.scripts, queue, BATCH, held.fencing_token)
                self.lateness.add(late_us / 1_000_000, count)
                moved += count
                if count:
                    failpoint("unlock.between-batches")
                if count < BATCH:
                    return RunResult(moved), None
        except (LockLost, RedisError, OSError) as error:
            return RunResult(moved), error
        return RunResult(moved, more=True), None
