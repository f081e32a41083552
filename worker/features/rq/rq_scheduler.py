"""rq_scheduler: enqueues due entries of rq-scheduler for the RQ queues whose jobs this system runs."""

from __future__ import annotations

from datetime import timedelta

from firmq.shared.stores.locks import HeldLock
from firmq.worker.features.rq.scheduler_entries import SchedulerEntries
from firmq.worker.housekeeping.registry import RunResult


class RqScheduler:
    """Each due time becomes one job, also with several instances and beside processes of rq-scheduler."""

    name = "rq_scheduler"

    def __init__(self, entries: SchedulerEntries, interval: timedelta) -> None:
        self.entries = entries
        self.interval = interval

    def run(self, held: HeldLock) -> RunResult:
        held.check()
        return RunResult(self.entries.enqueue_due(held.fencing_token))
