"""Metrics of a relay and of the table that it reads."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from datetime import UTC, datetime

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from firmq.outbox.relay import Counts, Relay
from firmq.outbox.rows import Backlog

log = logging.getLogger(__name__)


class OutboxMetrics(Collector):
    """Counters of this relay, and gauges that are absent while the database does not answer."""

    def __init__(self, counts: Counts, backlog: Callable[[], Backlog]) -> None:
        self.counts = counts
        self.backlog = backlog

    def collect(self) -> Iterator[Metric]:
        counts = self.counts
        yield CounterMetricFamily("firmq_outbox_sent", "Rows that this relay sent.", counts.sent)
        yield CounterMetricFamily("firmq_outbox_refused", "Rows sent by this relay and refused.", counts.refused)
        yield CounterMetricFamily("firmq_outbox_failures", "Passes of this relay that failed.", counts.failed)
        rows = GaugeMetricFamily("firmq_outbox_rows", "Rows of the outbox, by state.", labels=("state",))
        oldest = GaugeMetricFamily("firmq_outbox_oldest_seconds", "Age of the oldest waiting row; 0: none waits.")
        try:
            backlog = self.backlog()
        except Exception as error:
            log.warning("the rows of the outbox cannot be counted: %s", error)
        else:
            rows.add_metric(("waiting",), backlog.waiting)
            rows.add_metric(("refused",), backlog.refused)
            oldest.add_metric((), _age(backlog.oldest_at))
        yield rows
        yield oldest


def registry_of(relay: Relay) -> CollectorRegistry:
    """Returns a registry with the metrics of a relay and its process."""
    registry = CollectorRegistry()
    registry.register(OutboxMetrics(relay.counts, relay.table.backlog))
    ProcessCollector(registry=registry)
    return registry


def _age(at: datetime | None) -> float:
    return max(0.0, (datetime.now(UTC) - at).total_seconds()) if at else 0.0
