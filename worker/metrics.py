"""Metrics of a worker, for all of its executors together.

Plain numbers that are turned into Prometheus' families on scraping. An attempt is counted when Redis has accepted its
report, not before: one that was refused because its lease was lost is counted by the worker that had the lease, so
that the sum over all workers is the number of tasks. Labels are bounded: types are those that this worker registers,
and each has a bounded number of error classes.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from firmq.shared.domain.task import TaskState

BUCKETS = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 600.0)
MOST_TYPES = 200
"""Task types with a label of their own, at most."""
MOST_ERRORS = 20
"""Error classes with a label of their own for each type, at most."""
OTHER = "other"
"""The label of everything beyond these, and of types that are not registered here."""
_LONGEST = 100


@dataclass(slots=True)
class Durations:
    """One histogram."""

    counts: list[int] = field(default_factory=lambda: [0] * (len(BUCKETS) + 1))
    total: float = 0.0

    def observe(self, seconds: float) -> None:
        self.counts[bisect_left(BUCKETS, seconds)] += 1
        self.total += seconds

    def buckets(self) -> list[tuple[str, float]]:
        running, answer = 0, []
        for bound, count in zip((*map(str, BUCKETS), "+Inf"), self.counts, strict=True):
            running += count
            answer.append((bound, float(running)))
        return answer


@dataclass(frozen=True, slots=True)
class Holdings:
    """The tasks and executors that a worker holds at the moment."""

    held: int = 0
    memory_bytes: int = 0
    slots: Mapping[str, int] = field(default_factory=dict)
    """By kind of executor, how many tasks can run at a time."""
    busy: Mapping[str, int] = field(default_factory=dict)
    """By kind of executor, how many run."""


class WorkerMetrics(Collector):
    """The counters of one worker."""

    def __init__(self, worker: str) -> None:
        self.worker = worker
        self.completions: Counter[tuple[str, str]] = Counter()
        self.failures: Counter[tuple[str, str]] = Counter()
        # Starts at 0, so that a rate includes the first.
        self.errors: Counter[str] = Counter(dict.fromkeys(("redis", "executor_crash", "corrupt_record", "script"), 0))
        self.durations: dict[str, Durations] = {}
        self.waits = Durations()
        self.retries = 0
        self.crashes = 0
        self.leases_lost = 0
        self.given_back = 0
        self.busy_seconds = 0.0
        self._classes: Counter[str] = Counter()

    def know(self, types: Iterable[str]) -> None:
        """Adds registered types; each is shown from now on, so that a rate includes its first task."""
        for task_type in types:
            if task_type not in self.durations and len(self.durations) < MOST_TYPES:
                self._add(task_type)

    def ended(self, task_type: str, state: str, seconds: float, error: str) -> None:
        """Counts an ended attempt that Redis accepted; `state` is the task's new state."""
        if state in (TaskState.PENDING, TaskState.SCHEDULED):
            return  # it was interrupted or refused, and returned, or its handler sleeps
        durations = self.durations.get(task_type)
        if durations is None:
            task_type = OTHER
            durations = self.durations.get(OTHER) or self._add(OTHER)
        durations.observe(seconds)
        self.busy_seconds += seconds
        if state == TaskState.RETRYING:
            self.retries += 1
        else:
            self.completions[task_type, state] += 1
        if error and state != TaskState.CANCELLED:
            self.failures[task_type, self._error(task_type, error)] += 1

    def total(self, state: TaskState) -> int:
        """Returns how many tasks of all types ended in a state."""
        return sum(count for (_, each), count in list(self.completions.items()) if each == state)

    def _add(self, task_type: str) -> Durations:
        for state in (TaskState.COMPLETED, TaskState.FAILED):
            self.completions[task_type, state] = 0
        durations = self.durations[task_type] = Durations()
        return durations

    def _error(self, task_type: str, error: str) -> str:
        if (task_type, error) in self.failures:
            return error
        error = error.encode("utf-8", "replace").decode()[:_LONGEST]
        if (task_type, error) in self.failures:
            return error
        if self._classes[task_type] >= MOST_ERRORS:
            return OTHER
        self._classes[task_type] += 1
        return error

    def collect(self) -> Iterable[Metric]:
        completions = CounterMetricFamily("task_completions", "Tasks ended by this worker.", labels=["type", "status"])
        for (task_type, status), count in list(self.completions.items()):
            completions.add_metric([task_type, status], count)
        failures = CounterMetricFamily("task_failures", "Attempts that did not succeed.", labels=["type", "error"])
        for (task_type, error), count in list(self.failures.items()):
            failures.add_metric([task_type, error], count)
        errors = CounterMetricFamily(
            "worker_errors",
            # The name has no "task_" in it, by which the ten are looked for: the help has.
            "Errors of the worker, not in task_failures_total: redis (unreachable), script (failed in Redis), "
            "executor_crash, corrupt_record.",
            labels=["worker", "type"],
        )
        for kind, count in list(self.errors.items()):
            errors.add_metric([self.worker, kind], count)
        durations = HistogramMetricFamily("task_duration_seconds", "Run time of an attempt.", labels=["type"])
        for task_type, each in list(self.durations.items()):
            durations.add_metric([task_type], each.buckets(), each.total)
        waits = HistogramMetricFamily("firmq_queue_wait_seconds", "Time from enqueueing to start.")
        waits.add_metric([], self.waits.buckets(), self.waits.total)
        yield from (completions, failures, errors, durations, waits)
        yield CounterMetricFamily("task_retries", "Attempts that will be followed by another.", self.retries)
        yield CounterMetricFamily("firmq_crashes", "Executors that died while running a task.", self.crashes)
        yield CounterMetricFamily("firmq_leases_lost", "Reports refused: lease lost.", self.leases_lost)
        yield CounterMetricFamily("firmq_given_back", "Tasks returned before they began.", self.given_back)


class HoldingsMetrics(Collector):
    """Gauges of a worker's `Held`."""

    def __init__(self, holdings: Callable[[], Holdings]) -> None:
        self.holdings = holdings

    def collect(self) -> Iterable[Metric]:
        now = self.holdings()
        slots = GaugeMetricFamily("firmq_slots", "Tasks that the executors can run at a time.", labels=["kind"])
        busy = GaugeMetricFamily("firmq_busy_slots", "Slots in which a task runs.", labels=["kind"])
        for kind in now.slots:
            slots.add_metric([kind], now.slots[kind])
            busy.add_metric([kind], now.busy[kind])
        yield from (slots, busy)
        yield GaugeMetricFamily("firmq_executor_memory_bytes", "Memory of the executors.", now.memory_bytes)
        yield GaugeMetricFamily("firmq_held_tasks", "Tasks that this worker holds leases on.", now.held)
