"""Metrics of the locks of this instance."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable

from prometheus_client.core import CounterMetricFamily, Metric, SummaryMetricFamily
from prometheus_client.registry import Collector

from firmq.shared.domain.lock import Taken
from firmq.shared.stores.locks import lock_names


class LockMetrics(Collector):
    """Implements `LockEvents`."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.results: Counter[tuple[str, Taken]] = Counter()
        self.waits: Counter[str] = Counter()
        self.holds: Counter[str] = Counter()
        self.wait_seconds: dict[str, float] = {}
        self.hold_seconds: dict[str, float] = {}
        # Starts at 0, or Prometheus would not see the first of each as an increase.
        self.renewal_failures, self.losses, self.refusals, self.stops = (
            Counter(dict.fromkeys(lock_names(), 0)) for _ in range(4)
        )

    def tried(self, name: str, result: Taken, seconds: float) -> None:
        with self._lock:
            self.results[name, result] += 1
            self.waits[name] += 1
            self.wait_seconds[name] = self.wait_seconds.get(name, 0.0) + seconds

    def held(self, name: str, seconds: float) -> None:
        with self._lock:
            self.holds[name] += 1
            self.hold_seconds[name] = self.hold_seconds.get(name, 0.0) + seconds

    def renewal_failed(self, name: str) -> None:
        with self._lock:
            self.renewal_failures[name] += 1

    def lost(self, name: str) -> None:
        with self._lock:
            self.losses[name] += 1

    def refused(self, name: str) -> None:
        """Counts a late step that its script refused."""
        with self._lock:
            self.refusals[name] += 1

    def stopped(self, name: str) -> None:
        """Counts a holder that ended its run because it no longer trusted its lock."""
        with self._lock:
            self.stops[name] += 1

    def collect(self) -> Iterable[Metric]:
        with self._lock:
            yield self._tries()
            yield _summary("wait", "Time until a lock was taken, or found taken.", self.waits, self.wait_seconds)
            yield _summary("hold", "Time for which locks were held.", self.holds, self.hold_seconds)
            yield _counter("renewal_failures", "Renewals that Redis did not answer.", self.renewal_failures)
            yield _counter("lost", "Locks that ended or were taken away while they were held.", self.losses)
            yield _counter("refused_writes", "Steps refused because their lock was no longer held.", self.refusals)
            yield _counter("stops", "Runs ended by a holder that no longer trusted its lock.", self.stops)

    def _tries(self) -> Metric:
        family = CounterMetricFamily(
            "firmq_lock_acquisitions", "Tries to take a lock, by result.", labels=["lock", "result"]
        )
        for (name, result), count in self.results.items():
            family.add_metric([name, result], count)
        return family


def _counter(name: str, text: str, counts: Counter[str]) -> Metric:
    family = CounterMetricFamily(f"firmq_lock_{name}", text, labels=["lock"])
    for lock, count in counts.items():
        family.add_metric([lock], count)
    return family


def _summary(name: str, text: str, counts: Counter[str], seconds: dict[str, float]) -> Metric:
    family = SummaryMetricFamily(f"firmq_lock_{name}_seconds", text, labels=["lock"])
    for lock, count in counts.items():
        family.add_metric([lock], count, seconds[lock])
    return family
