"""metrics: measures the whole system, on the leader only."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from firmq.shared.conditions.observation import Observation, Observer
from firmq.shared.domain.clock import instant, instant_us
from firmq.shared.domain.task import TaskState
from firmq.shared.stores.locks import HeldLock
from firmq.shared.stores.queues import QueueInfo
from firmq.shared.stores.task_types import types_waiting
from firmq.worker.feature import features
from firmq.worker.housekeeping.clock_watch import ClockWatch
from firmq.worker.housekeeping.locking import Leadership
from firmq.worker.housekeeping.registry import RunResult
from firmq.worker.housekeeping.store_gauges import store_gauges

PATIENCE = timedelta(seconds=5)
"""How much older than its interval a measurement may be while it is still shown."""


@dataclass(frozen=True, slots=True)
class Measured:
    """The gauges of one instant; `at` is on the monotonic clock."""

    metrics: tuple[Metric, ...]
    at: float


class Metrics:
    """Measures the whole system for `SystemGauges`."""

    name = "metrics"

    def __init__(self, observer: Observer, interval: timedelta) -> None:
        self.observer = observer
        self.scripts = observer.scripts
        self.interval = interval
        self.measured: Measured | None = None
        self.clock = ClockWatch()

    def run(self, held: HeldLock) -> RunResult:
        began = time.monotonic()
        metrics = tuple(self._measure())
        held.check()
        self.measured = Measured(metrics, began)
        return RunResult()

    def _measure(self) -> Iterator[Metric]:
        seen, counts = self.observer.glance(), self.observer.records.counts()
        now_us = instant_us(seen.at)
        yield GaugeMetricFamily(
            "firmq_redis_clock_behind_seconds",
            "Lateness of scheduled tasks because Redis' clock was set back.",
            self.clock.behind(now_us),
        )
        yield from _twins(
            "tasks_in_dlq_total",
            "firmq_dead_letters",
            "Dead letters: ended as failed in task_completions_total, and neither requeued nor removed since.",
            counts[TaskState.FAILED],
        )
        yield from _twins(
            "active_workers_total",
            "firmq_active_workers",
            "Live workers, the source of task_completions_total.",
            len(seen.workers),
        )
        yield from _twins(
            "retry_tasks_total",
            "firmq_retry_tasks",
            "Tasks that wait for a retry, each of them counted in task_retries_total.",
            counts[TaskState.RETRYING],
        )
        yield from _of_queues(seen)
        yield from self._of_waiting(seen)
        yield self._of_tenants(seen)
        yield from self._of_types(seen)
        for gauges in filter(None, (feature.gauges for feature in features())):
            yield from gauges(self.scripts)
        tasks = GaugeMetricFamily("firmq_tasks", "Stored tasks by state.", labels=["status"])
        for state, count in counts.items():
            tasks.add_metric([state], count)
        yield tasks
        yield from store_gauges(seen.info)

    def _of_waiting(self, seen: Observation) -> Iterator[Metric]:
        """Yields how overdue the first of each kind is."""
        keys, redis = self.scripts.keys, self.scripts.redis
        dead_letter = redis.zrange(keys.ended(TaskState.FAILED), 0, 0, withscores=True)
        since = seen.seconds_since
        task = max(since(queue.due_at) for queue in seen.queues)
        for name, text, value in (
            ("oldest_dead_letter_age_seconds", "Age of the oldest dead letter.", since(_first(dead_letter))),
            ("task_overdue_seconds", "Time since the most overdue retry or run-at task was due.", task),
            ("lease_overdue_seconds", "Time since the oldest unhandled lease ended.", since(seen.lease_ended_at)),
            ("schedule_overdue_seconds", "Time since the most overdue schedule was due.", since(seen.schedule_due_at)),
            ("schedules", "Schedules stored.", redis.zcard(keys.SCHEDULES)),
            ("quarantined_keys", "Keys quarantined in the last week because of a wrong type.", seen.quarantined),
        ):
            yield GaugeMetricFamily(f"firmq_{name}", text, value)

    def _of_tenants(self, seen: Observation) -> Metric:
        wait_queues = self.scripts.keys.wait_queues
        waiting = [queue for queue in seen.queues if queue.throttled and queue.paused is None]
        with self.scripts.redis.pipeline(transaction=False) as pipeline:
            for queue in waiting:
                for lane in (queue.name, f"{queue.name}+"):
                    # 0 is the turn of tasks with a score and without a tenant, which share the list's turns.
                    pipeline.zrangebyscore(wait_queues(f"{lane}|"), "(0", "+inf", start=0, num=1, withscores=True)
            firsts = pipeline.execute()
        ages = [seen.seconds_since(_first(row)) for row in firsts]
        longest = dict(zip((queue.name for queue in waiting), map(max, ages[::2], ages[1::2]), strict=True))
        return _by_queue(
            "firmq_tenant_turn_age_seconds",
            "Time since the longest waiting tenant (fair_key) of a queue that is not paused came or had its turn.",
            seen.queues,
            lambda queue: longest.get(queue.name, 0),
        )

    def _of_types(self, seen: Observation) -> Iterator[Metric]:
        count = GaugeMetricFamily(
            "firmq_tasks_without_worker", "Pending tasks that no live worker can run.", labels=["type"]
        )
        age = GaugeMetricFamily(
            "firmq_tasks_without_worker_age_seconds",
            "Waiting time of the oldest pending task that no live worker can run.",
            labels=["type"],
        )
        for task_type, waiting, since_us in types_waiting(self.scripts):
            count.add_metric([task_type], waiting)
            age.add_metric([task_type], seen.seconds_since(instant(since_us)))
        yield from (count, age)


class SystemGauges(Collector):
    """Leadership, and the leader's last measurement.

    Only the leader shows the gauges of the whole system, after checking in Redis that it still leads; gauges that are
    too old are not shown: a gauge that cannot be measured disappears instead of freezing.
    """

    def __init__(self, leadership: Leadership, job: Metrics, monotonic: Callable[[], float] = time.monotonic) -> None:
        self.leadership = leadership
        self.job = job
        self.monotonic = monotonic

    def collect(self) -> Iterable[Metric]:
        leads = self.leadership.leads()
        yield GaugeMetricFamily("firmq_housekeeper_leader", "Whether this instance leads.", int(leads))
        yield GaugeMetricFamily(
            "firmq_housekeeper_leader_term",
            "The fencing number of this instance's latest term; 0 for none.",
            self.leadership.term,
        )
        yield CounterMetricFamily(
            "firmq_housekeeper_elections", "How often this instance was elected.", self.leadership.elections
        )
        measured = self.job.measured
        if leads and measured and self.monotonic() - measured.at < (self.job.interval + PATIENCE).total_seconds():
            yield from measured.metrics


def _first(entries: Any) -> datetime | None:
    """Returns the moment of the first entry of an index."""
    return instant(entries[0][1]) if entries else None


def _twins(name: str, twin: str, text: str, value: float) -> Iterable[Metric]:
    """Yields a gauge under the documented name, which ends like a counter's, and under a conventional one."""
    yield GaugeMetricFamily(name, text, value)
    yield GaugeMetricFamily(twin, text, value)


def _of_queues(seen: Observation) -> Iterator[Metric]:
    pending = "Tasks of task_submissions_total that wait to be run now."
    values: tuple[tuple[str, str, Callable[[QueueInfo], float]], ...] = (
        ("pending_tasks_total", pending, lambda queue: queue.pending),
        ("firmq_pending_tasks", pending, lambda queue: queue.pending),
        (
            "firmq_oldest_pending_age_seconds",
            "Age of the longest waiting task that may run.",
            lambda queue: seen.seconds_since(queue.oldest_at),
        ),
        (
            "firmq_queue_workers",
            "Live workers that take tasks from the queue.",
            lambda queue: sum(worker.takes(queue.name) for worker in seen.workers),
        ),
        (
            "firmq_foreign_jobs",
            "Jobs of RQ programs in the queue's list: parked, not run.",
            lambda queue: queue.foreign,
        ),
        ("firmq_queue_paused", "Whether the queue is paused.", lambda queue: queue.paused is not None),
    )
    for name, text, value in values:
        yield _by_queue(name, text, seen.queues, value)


def _by_queue(name: str, text: str, overview: Iterable[QueueInfo], value: Callable[[QueueInfo], float]) -> Metric:
    family = GaugeMetricFamily(name, text, labels=["priority"])
    for queue in overview:
        family.add_metric([queue.name], value(queue))
    return family


class ByStore(Collector):
    """The metrics of several stores, with a label that names each."""

    def __init__(self, label: str, registries: Mapping[int, CollectorRegistry]) -> None:
        self.label = label
        self.registries = registries

    def collect(self) -> Iterable[Metric]:
        families: dict[str, Metric] = {}
        for number, registry in self.registries.items():
            for metric in registry.collect():
                family = families.setdefault(metric.name, Metric(metric.name, metric.documentation, metric.type))
                family.samples += [
                    each._replace(labels={**each.labels, self.label: str(number)}) for each in metric.samples
                ]
        return families.values()
