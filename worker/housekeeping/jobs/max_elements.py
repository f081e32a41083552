"""max_elements: bounds stored records and dead letters; removes the oldest first."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import timedelta

from prometheus_client.core import CounterMetricFamily, Metric
from prometheus_client.registry import Collector

from firmq.shared.domain.task import TaskState
from firmq.shared.redis.scripts import Scripts
from firmq.shared.stores import maintenance
from firmq.shared.stores.locks import HeldLock
from firmq.worker.housekeeping.registry import RunResult, removed_until_done

log = logging.getLogger(__name__)

BATCH = 200
ROUNDS = 100


class MaxElements(Collector):
    """Removes only tasks that have ended. A limit of 0 means none."""

    name = "max_elements"

    def __init__(self, scripts: Scripts, limits: Mapping[TaskState, int], interval: timedelta) -> None:
        self.scripts = scripts
        self.limits = limits
        self.interval = interval
        self.removed: Counter[TaskState] = Counter()

    def run(self, held: HeldLock) -> RunResult:
        return sum((self._trim(state, limit, held) for state, limit in self.limits.items() if limit), RunResult())

    def _trim(self, state: TaskState, limit: int, held: HeldLock) -> RunResult:
        trimmed = removed_until_done(
            held, lambda: maintenance.trim(self.scripts, state, limit, BATCH, held.fencing_token), BATCH, ROUNDS
        )
        self.removed[state] += trimmed.done
        if trimmed.done:
            log.warning(
                "%d %s tasks removed, the oldest: more than the limit of %d were kept", trimmed.done, state, limit
            )
        return trimmed

    def collect(self) -> Iterable[Metric]:
        family = CounterMetricFamily(
            "firmq_removed_over_limit",
            "Ended tasks removed because more were kept than the limit.",
            labels=["status"],
        )
        for state in self.limits:
            family.add_metric([state], self.removed[state])
        yield family
