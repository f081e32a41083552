"""The gateway's own metrics, summed over all of its processes (`serve.py`).

Each process counts into its own files, which the others read. `take_over` adds the counts of an ended process to one
file for all ended processes, so that sums never decrease and files do not accumulate.
"""

from __future__ import annotations

import fcntl
import logging
import time
from collections import Counter as Counts
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.mmap_dict import MmapedDict
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.registry import Collector

from firmq.shared.domain.task import NewTask

log = logging.getLogger(__name__)

BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
MOST_TYPES = 200
"""Maximum task types with their own label; the rest is counted as `other`."""
MOST_QUEUES = 100
"""Maximum queues with their own label, as `MOST_TYPES`."""
REFUSED = ("missing", "unknown", "expired", "scope", "rate")
"""Reasons for refusing an API key. A revoked key counts as unknown, because no record of it is left."""


class Metrics:
    """Counters with bounded labels: existing task types and priorities, and declared routes."""

    def __init__(
        self,
        registry: CollectorRegistry | None = None,
        shared_folder: str | None = None,
        started_at: float | None = None,
    ) -> None:
        """`started_at` is when the first process started, in seconds since 1970."""
        self.registry = registry or CollectorRegistry()
        self.shared_folder = shared_folder
        self.started = _Started(started_at or time.time())
        self.types: set[str] = set()
        self.queues: set[str] = set()
        self.submissions = Counter(
            "task_submissions_total", "Tasks accepted.", ("priority", "type"), registry=self.registry
        )
        self.key_refusals = Counter(
            "firmq_key_refusals_total",
            "Requests refused for their API key, by reason.",
            ("reason",),
            registry=self.registry,
        )
        for reason in REFUSED:
            self.key_refusals.labels(reason)
        self.requests = Histogram(
            "firmq_http_request_duration_seconds",
            "Duration of requests in seconds, by route, method and class of status.",
            ("route", "method", "status"),
            buckets=BUCKETS,
            registry=self.registry,
        )

    @property
    def names(self) -> frozenset[str]:
        """Returns the metric families of the gateway itself, which no other part may add to."""
        return frozenset({"task_submissions", "firmq_key_refusals", "firmq_http_request_duration_seconds"})

    def count(self, *tasks: NewTask) -> None:
        """Counts stored tasks."""
        for (queue, task_type), number in Counts((task.queue, task.type) for task in tasks).items():
            self.submitted(queue, task_type, number)

    def submitted(self, queue: str, task_type: str, number: int = 1) -> None:
        """Counts stored tasks. Types beyond MOST_TYPES and queues beyond MOST_QUEUES count as `other`."""
        task_type, queue = _label(task_type, self.types, MOST_TYPES), _label(queue, self.queues, MOST_QUEUES)
        self.submissions.labels(queue, task_type).inc(number)

    def refused(self, reason: str) -> None:
        """Counts a request refused for its API key, by a reason of `REFUSED`; the client is not recorded."""
        self.key_refusals.labels(reason).inc()

    def answered(self, route: str, method: str, status: int, seconds: float) -> None:
        """Counts an answered request and its duration."""
        self.requests.labels(route, method, f"{status // 100}xx").observe(seconds)

    def render(self) -> bytes:
        """Returns the metrics in the text format of Prometheus."""
        if self.shared_folder is None:
            return generate_latest(self.registry) + self._render_start()
        registry = CollectorRegistry()
        with _alone(self.shared_folder, fcntl.LOCK_SH):
            registry.register(_Files(self.shared_folder))
            return generate_latest(registry) + self._render_start()

    def _render_start(self) -> bytes:
        registry = CollectorRegistry()
        registry.register(self.started)
        return generate_latest(registry)


class _Files(Collector):
    """The counts of all processes. The file of a process that has just started is empty for a moment."""

    def __init__(self, folder: str) -> None:
        self.folder = folder

    def collect(self) -> Iterable[Metric]:
        files = [str(file) for file in Path(self.folder).glob("*.db") if file.stat().st_size]
        found: Iterable[Metric] = MultiProcessCollector.merge(files)  # type: ignore[no-untyped-call]  # it has none
        return found


class _Started(Collector):
    """The start time of this gateway, one for all of its processes."""

    def __init__(self, at: float) -> None:
        self.at = at

    def collect(self) -> Iterator[Metric]:
        yield GaugeMetricFamily(
            "process_start_time_seconds", "Start time of the gateway, in seconds since 1970.", self.at
        )


def take_over(folder: str, pid: int) -> None:
    """Adds the counts of an ended process to the total of ended processes."""
    with _alone(folder, fcntl.LOCK_EX):
        for kind in ("counter", "histogram"):
            left = Path(folder, f"{kind}_{pid}.db")
            if left.exists() and left.stat().st_size:
                _add(left, Path(folder, f"{kind}_gone.db"))
            left.unlink(missing_ok=True)


def _add(left: Path, gone: Path) -> None:
    try:
        counts = [(key, value) for key, value, _, _ in MmapedDict.read_all_values_from_file(str(left))]  # type: ignore[no-untyped-call]  # it has none
        sums = MmapedDict(str(gone))  # type: ignore[no-untyped-call]
        for key, value in counts:
            sums.write_value(key, sums.read_value(key)[0] + value, 0.0)  # type: ignore[no-untyped-call]
        sums.close()  # type: ignore[no-untyped-call]
    except (RuntimeError, ValueError, OSError):
        log.exception("counts of an ended process cannot be read; they are lost")


@contextmanager
def _alone(folder: str, how: int) -> Iterator[None]:
    """Locks the folder, so that the files are not read while two are merged."""
    with open(Path(folder, "lock"), "a") as lock:
        fcntl.flock(lock, how)
        yield


def _label(name: str, known: set[str], most: int) -> str:
    if name not in known and len(known) >= most:
        return "other"
    known.add(name)
    return name
