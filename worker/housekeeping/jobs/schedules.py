"""schedules: creates a task for each due time of a cron expression or interval, once."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta

from prometheus_client.core import CounterMetricFamily, Metric
from prometheus_client.registry import Collector

from firmq.shared.stores.locks import HeldLock
from firmq.shared.stores.schedules import Fired, ScheduleStore
from firmq.worker.housekeeping.lateness import Lateness
from firmq.worker.housekeeping.registry import RunResult


class Schedules(Collector):
    """`schedule_fire.lua` guarantees exactly one task; the lock keeps instances from doing the same work."""

    name = "schedules"

    def __init__(
        self, schedule_store: ScheduleStore, interval: timedelta, grace: timedelta, lateness: Lateness
    ) -> None:
        self.schedule_store = schedule_store
        self.interval = interval
        self.grace = grace
        self.lateness = lateness
        self.total = Fired()

    def run(self, held: HeldLock) -> RunResult:
        held.check()
        before, self.total.lateness = self.total.tasks, []
        more = self.schedule_store.fire_due(held.fencing_token, self.grace, self.total)
        for seconds in self.total.lateness:
            self.lateness.add(seconds, 1)
        more |= self.schedule_store.follow(held.fencing_token)
        return RunResult(self.total.tasks - before, more)

    def collect(self) -> Iterable[Metric]:
        for name, text, value in (
            ("fired", "Tasks made from due times of schedules.", self.total.tasks),
            ("missed", "Due times of schedules that passed without a task.", self.total.missed),
            ("overlaps", "Due times skipped because the last task had not ended.", self.total.overlaps),
            ("refused", "Schedules paused because tasks of their type cannot be submitted.", self.total.refused),
        ):
            yield CounterMetricFamily(f"firmq_schedule_{name}", text, value)
