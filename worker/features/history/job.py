"""history: stores ended tasks in the database of the history, and removes tasks past their retention there."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta

from prometheus_client.core import CounterMetricFamily, Metric
from prometheus_client.registry import Collector

from firmq.shared.domain.clock import instant
from firmq.shared.domain.task import TaskState
from firmq.shared.errors import HistoryUnavailable, IncompatibleSchema
from firmq.shared.failpoints import failpoint
from firmq.shared.features.history.feeding import Feeder
from firmq.shared.features.history.unarchived import Unarchived
from firmq.shared.redis.scripts import Scripts
from firmq.shared.stores.locks import HeldLock
from firmq.worker.housekeeping.registry import RunResult

log = logging.getLogger(__name__)

BATCH = 200
REMOVED_AT_ONCE = 1000
BETWEEN_REMOVALS = 60.0
LONG_AGO = timedelta(minutes=5)
"""Lag from which the job works without pauses."""
SHARE = 0.15
"""Part of the time that the job works before that: workers that drain a queue need the processors more."""


class History(Collector):
    """Moves ends from Redis to the database. While that is unavailable, ends wait in Redis; nothing else does."""

    name = "history"

    def __init__(
        self,
        scripts: Scripts,
        feeder: Feeder,
        retention: Mapping[TaskState, timedelta],
        interval: timedelta,
        pause: Callable[[float], object] = time.sleep,
    ) -> None:
        self.scripts = scripts
        self.unarchived = Unarchived(scripts)
        self.feeder = feeder
        self.retention = retention
        self.interval = interval
        self.pause = pause
        self.stored = 0
        self.removed = 0
        self.failures = 0
        self.error = ""
        self.remove_at = 0.0

    def run(self, held: HeldLock) -> RunResult:
        held.check()
        began = time.monotonic()
        ends = self.unarchived.take(BATCH, held.fencing_token, self.error)
        try:
            if ends:
                self.stored += self.feeder.store(ends)
            self._remove_old()
        except (HistoryUnavailable, IncompatibleSchema) as error:
            return self._failed(error)
        self.error = ""
        failpoint("history.stored")
        if ends:
            self.unarchived.done(ends, held.fencing_token)
        if not ends or instant(self.scripts.now_us()) - instant(float(ends[0].score)) < LONG_AGO:
            self.pause(min(1.0, (time.monotonic() - began) * (1 / SHARE - 1)))
        return RunResult(len(ends), more=len(ends) == BATCH)

    def _failed(self, error: Exception) -> RunResult:
        """Counts and shows an error; it is not one of housekeeping, whose other jobs and health do not depend on it."""
        if not self.error:
            log.error("the history cannot be stored; ended tasks wait in Redis: %s", error)
        self.failures += 1
        self.error = str(error)
        return RunResult()

    def _remove_old(self) -> None:
        if time.monotonic() < self.remove_at:
            return
        removed = self.feeder.prune(self.retention, self.scripts.now_us(), REMOVED_AT_ONCE)
        self.removed += removed
        if removed < REMOVED_AT_ONCE:
            self.remove_at = time.monotonic() + BETWEEN_REMOVALS

    def collect(self) -> Iterable[Metric]:
        for name, text, value in (
            ("stored", "Ended tasks stored in the history.", self.stored),
            ("removed", "Ended tasks removed from the history at the end of their retention.", self.removed),
            ("unreadable", "Ended tasks left out of the history: unreadable.", self.feeder.unreadable),
            ("failures", "Runs in which the database of the history could not be used.", self.failures),
        ):
            yield CounterMetricFamily(f"firmq_history_{name}", text, value)
