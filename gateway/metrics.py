"""What the gateway counts about itself. With several processes the counts of all are added up (`serve.py`).

Each process counts into files of its own, which the others read. What a process that ended had counted goes on
counting: `take_over` adds it to the file of those that are gone, so that sums never fall and files do not pile up.
"""

from __future__ import annotations

import fcntl
import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.mmap_dict import MmapedDict
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.registry import Collector

log = logging.getLogger(__name__)

BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
MOST_TYPES = 200
"""Task types that are told apart; the rest is counted as `other`."""
REFUSED = ("missing", "unknown", "expired", "scope", "rate")
"""Why requests are refused for their key. One that was revoked is unknown: nothing is left of it."""


class Metrics:
    """Counters with bounded labels: task types and priorities that exist, routes as they are declared."""

    def __init__(
        self,
        registry: CollectorRegistry | None = None,
        shared_folder: str | None = None,
        started_at: float | None = None,
    ) -> None:
        """`started_at` is when the first process started, by the wall clock."""
        self.registry = registry or CollectorRegistry()
        self.shared_folder = shared_folder
        self.started = _Started(started_at or time.time())
        self.types: set[str] = set()
        self.task_factory = Counter(
            "task_submissions_total", "Tasks accepted.", ("priority", "type"), registry=self.registry
        )
        self.key_refusals = Counter(
            "taskqueue_key_refusals_total",
            "Requests refused for their API key, by why.",
            ("reason",),
            registry=self.registry,
        )
        for reason in REFUSED:
            self.key_refusals.labels(reason)
        self.requests = Histogram(
            "taskqueue_http_request_duration_seconds",
            "Requests by route, method and class of status.",
            ("route", "method", "status"),
            buckets=BUCKETS,
            registry=self.registry,
        )

    @property
    def names(self) -> frozenset[str]:
        """The families that are ours, which no other part may add to."""
        return frozenset({"task_submissions", "taskqueue_key_refusals", "taskqueue_http_request_duration_seconds"})

    def submitted(self, priority: str, task_type: str, number: int = 1) -> None:
        """Tasks were stored. Their type was published by a worker, but nobody knows how many types one may publish."""
        if task_type not in self.types:
            if len(self.types) >= MOST_TYPES:
                task_type = "other"
            else:
                self.types.add(task_type)
        self.task_factory.labels(priority, task_type).inc(number)

    def refused(self, reason: str) -> None:
        """A request was refused for its key: one of `REFUSED`, and never whose key it was."""
        self.key_refusals.labels(reason).inc()

    def answered(self, route: str, method: str, status: int, seconds: float) -> None:
        """A request was answered."""
        self.requests.labels(route, method, f"{status // 100}xx").observe(seconds)

    def render(self) -> bytes:
        """The text that Prometheus reads."""
        if self.shared_folder is None:
            return generate_latest(self.registry) + self._render_start()
        registry = CollectorRegistry()
        with _alone(self.shared_folder, fcntl.LOCK_SH):
            MultiProcessCollector(registry, path=self.shared_folder)  # type: ignore[no-untyped-call]  # it has none
            return generate_latest(registry) + self._render_start()

    def _render_start(self) -> bytes:
        registry = CollectorRegistry()
        registry.register(self.started)
        return generate_latest(registry)


class _Started(Collector):
    """Since when this gateway runs, all of its processes together."""

    def __init__(self, at: float) -> None:
        self.at = at

    def collect(self) -> Iterator[Metric]:
        yield GaugeMetricFamily("process_start_time_seconds", "When it was started, in seconds since 1970.", self.at)


def take_over(folder: str, pid: int) -> None:
    """Adds what a process that ended had counted to what all before it had."""
    with _alone(folder, fcntl.LOCK_EX):
        for kind in ("counter", "histogram"):
            left = Path(folder, f"{kind}_{pid}.db")
            if left.exists():
                _add(left, Path(folder, f"{kind}_gone.db"))


def _add(left: Path, gone: Path) -> None:
    try:
        counts = [(key, value) for key, value, _, _ in MmapedDict.read_all_values_from_file(str(left))]  # type: ignore[no-untyped-call]  # it has none
        sums = MmapedDict(str(gone))  # type: ignore[no-untyped-call]
        for key, value in counts:
            sums.write_value(key, sums.read_value(key)[0] + value, 0.0)  # type: ignore[no-untyped-call]
        sums.close()  # type: ignore[no-untyped-call]
    except (RuntimeError, ValueError, OSError):
        log.exception("what a process had counted cannot be read; it is not counted any more")
    left.unlink()


@contextmanager
def _alone(folder: str, how: int) -> Iterator[None]:
    """Nobody reads the files while two are made one."""
    with open(Path(folder, "lock"), "a") as lock:
        fcntl.flock(lock, how)
        yield
