"""Lateness of due tasks: a histogram to which each batch adds many at once."""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections.abc import Iterable

from prometheus_client.core import HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

BOUNDS = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)


class Lateness(Collector):
    """Counts each task with the largest lateness of its batch, so that it is never understated."""

    def __init__(self, name: str, text: str) -> None:
        self.name = name
        self.text = text
        self._counts = [0] * (len(BOUNDS) + 1)
        self._sum = 0.0
        self._lock = threading.Lock()

    def add(self, seconds: float, tasks: int) -> None:
        """Adds a number of tasks with one lateness."""
        with self._lock:
            self._counts[bisect_left(BOUNDS, seconds)] += tasks
            self._sum += seconds * tasks

    def collect(self) -> Iterable[Metric]:
        with self._lock:
            counts, total = list(self._counts), self._sum
        running, buckets = 0, []
        for bound, count in zip((*map(str, BOUNDS), "+Inf"), counts, strict=True):
            running += count
            buckets.append((bound, running))
        family = HistogramMetricFamily(self.name, self.text)
        family.add_metric([], buckets, total)
        yield family
