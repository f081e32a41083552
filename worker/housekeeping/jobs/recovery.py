"""recovery: restores lost queue entries, and checks the consistency of all tasks."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable
from datetime import timedelta

from firmq.shared.domain.clock import to_us
from firmq.shared.redis.scripts import Scripts
from firmq.shared.stores import maintenance
from firmq.shared.stores.locks import HeldLock
from firmq.worker.housekeeping.jobs.queue_entries import without_entry
from firmq.worker.housekeeping.registry import RunResult, until_done

log = logging.getLogger(__name__)

BATCH = 200
ROUNDS = 20
STEP = 100
"""Tasks that the consistency check examines in one step: about 2 ms of Redis."""


class Recovery:
    """Repairs a list deleted by hand, a lost queue entry, a record without an index, an index without a record.

    Quarantines keys of another type first, which would stop all jobs. Lost queue entries are searched for in every run;
    the consistency check continues where the last run, of any instance, ended.
    """

    name = "recovery"

    def __init__(
        self,
        scripts: Scripts,
        queues: Iterable[str],
        interval: timedelta,
        grace: timedelta,
        tasks_per_run: int = 0,
        lease: timedelta = timedelta(seconds=30),
    ) -> None:
        self.scripts = scripts
        self.queues = queues
        self.interval = interval
        self.grace = grace
        self.tasks_per_run = tasks_per_run
        self.lease = lease
        self.foreign: dict[str, int] = {}

    def run(self, held: HeldLock) -> RunResult:
        quarantined = RunResult(self.scripts.quarantine(held.fencing_token, queues=tuple(self.queues)))
        done = sum((self._recover(queue, held) for queue in self.queues), quarantined) + RunResult(
            self._check_consistency(held)
        )
        self._note_foreign()
        return done

    def _recover(self, queue: str, held: HeldLock) -> RunResult:
        found, many = self._make_anew(queue, held), False

        def put_back() -> int:
            nonlocal many
            count = maintenance.recover(self.scripts, queue, to_us(self.grace), BATCH, held.fencing_token)
            many = count < 0
            return max(count, 0)

        found += until_done(held, put_back, BATCH, ROUNDS)
        if many:
            found += self._make_anew(queue, held, whole=True)
        if found.done:
            log.warning("queue %s: restored %d lost queue entries of pending tasks", queue, found.done)
        return found

    def _make_anew(self, queue: str, held: HeldLock, whole: bool = False) -> RunResult:
        """Searches for all at once, where the list is too short or, with `whole`, in any case."""
        found = RunResult()
        for lost in without_entry(self.scripts.redis, queue, whole):
            held.check()
            found += RunResult(
                maintenance.restore_entries(self.scripts, queue, to_us(self.grace), lost, held.fencing_token)
            )
        return found

    def _note_foreign(self) -> None:
        queues = list(self.queues)
        with self.scripts.redis.pipeline(transaction=False) as pipeline:
            for queue in queues:
                pipeline.zcard(self.scripts.keys.foreign(queue))
            counts = dict(zip(queues, pipeline.execute(), strict=True))
        for queue, count in counts.items():
            if count > self.foreign.get(queue, 0):
                log.warning(
                    "queue %s: %d jobs of RQ programs are parked, not run: move them to a queue that an RQ worker "
                    "serves: firmq queues move-foreign %s --to QUEUE",
                    queue,
                    count,
                    queue,
                )
        self.foreign = counts

    def _check_consistency(self, held: HeldLock) -> int:
        wrong: Counter[str] = Counter()
        left = self.tasks_per_run
        while left > 0:
            held.check()
            looked, found = maintenance.check_consistency(
                self.scripts, self.queues, to_us(self.lease), min(STEP, left), held.fencing_token
            )
            wrong.update(found)
            left -= max(looked, 1)
            if looked < STEP:
                break
        if wrong:
            log.warning("tasks repaired: %s", ", ".join(f"{count} {what}" for what, count in wrong.items()))
        return wrong.total()
