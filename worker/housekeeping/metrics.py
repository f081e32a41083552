"""metrics: gauges of the whole system, read from Redis when Prometheus asks."""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from shared.errors import StoreUnavailable
from shared.queues import QueueInfo, Queues
from shared.records import Records
from shared.tasks import TaskState
from shared.workers import Workers


class SystemGauges(Collector):
    """Yields nothing when Redis does not answer: a gauge that cannot be read disappears, it does not freeze."""

    def __init__(self, queues: Queues, records: Records, workers: Workers) -> None:
        self.queues = queues
        self.records = records
        self.workers = workers

    def collect(self) -> Iterable[Metric]:
        try:
            overview, counts, workers = self.queues.overview(), self.records.counts(), self.workers.count()
        except StoreUnavailable:
            return
        yield from _twins("tasks_in_dlq_total", "taskqueue_dead_letters", "Dead letters.", counts[TaskState.FAILED])
        yield from _twins("active_workers_total", "taskqueue_active_workers", "Live workers.", workers)
        yield from _twins(
            "retry_tasks_total", "taskqueue_retry_tasks", "Tasks that wait for a retry.", counts[TaskState.RETRYING]
        )
        yield from _pending(overview)
        tasks = GaugeMetricFamily("taskqueue_tasks", "Stored tasks by state.", labels=["status"])
        for state, count in counts.items():
            tasks.add_metric([state], count)
        yield tasks


def _twins(name: str, twin: str, text: str, value: float) -> Iterable[Metric]:
    """A gauge under the documented name, which ends like a counter's, and under a conventional one."""
    yield GaugeMetricFamily(name, text, value)
    yield GaugeMetricFamily(twin, text, value)


def _pending(overview: Iterable[QueueInfo]) -> Iterable[Metric]:
    families = [
        GaugeMetricFamily(name, "Tasks that wait to be run.", labels=["priority"])
        for name in ("pending_tasks_total", "taskqueue_pending_tasks")
    ]
    for queue in overview:
        for family in families:
            family.add_metric([queue.name], queue.pending)
    yield from families
