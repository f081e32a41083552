"""Runs the jobs, each at its interval, in threads of their own, so that a slow one does not hold up the rest."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from redis.exceptions import RedisError

from shared.errors import TaskQueueError
from worker.housekeeping.jobs import HousekeepingJob

log = logging.getLogger(__name__)


@dataclass(slots=True)
class JobRecord:
    """What a job did so far. `last_success` is on the monotonic clock."""

    runs: int = 0
    failures: int = 0
    items: int = 0
    seconds: float = 0.0
    last_success: float = field(default_factory=time.monotonic)


class Housekeeper(Collector):
    """The jobs of one process."""

    def __init__(self, instance: str, jobs: Sequence[HousekeepingJob]) -> None:
        self.instance = instance
        self.jobs = jobs
        self.records = {job.name: JobRecord() for job in jobs}
        self.stopped = threading.Event()
        self._threads = [
            threading.Thread(target=self._keep, args=(job,), name=f"housekeeping {job.name}", daemon=True)
            for job in jobs
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self, patience: float = 5.0) -> None:
        """Ends after the round that is under way."""
        self.stopped.set()
        until = time.monotonic() + patience
        for thread in self._threads:
            thread.join(max(0.0, until - time.monotonic()))

    def run_once(self, job: HousekeepingJob) -> int:
        """One round of a job, counted and timed; an error is logged, not raised, and the next round comes."""
        record = self.records[job.name]
        started = time.monotonic()
        done = 0
        try:
            done = job.run()
            record.last_success = time.monotonic()
        except (RedisError, OSError, TaskQueueError) as error:
            record.failures += 1
            log.error("housekeeping job %s failed: %s", job.name, error)
        record.runs += 1
        record.items += done
        record.seconds += time.monotonic() - started
        if done:
            log.debug("housekeeping job %s: %d done", job.name, done)
        return done

    def silent_seconds(self) -> dict[str, float]:
        """How long ago each job last succeeded."""
        now = time.monotonic()
        return {name: round(now - record.last_success, 1) for name, record in self.records.items()}

    def _keep(self, job: HousekeepingJob) -> None:
        while not self.stopped.is_set():
            self.run_once(job)
            self.stopped.wait(job.interval.total_seconds())

    def collect(self) -> Iterable[Metric]:
        runs = CounterMetricFamily("taskqueue_housekeeping_runs", "Rounds of a housekeeping job.", labels=["job"])
        failures = CounterMetricFamily("taskqueue_housekeeping_failures", "Rounds that failed.", labels=["job"])
        items = CounterMetricFamily("taskqueue_housekeeping_items", "Tasks that a job put right.", labels=["job"])
        seconds = CounterMetricFamily("taskqueue_housekeeping_seconds", "Time spent in a job.", labels=["job"])
        age = GaugeMetricFamily(
            "taskqueue_housekeeping_last_success_age_seconds", "Since a job last succeeded.", labels=["job"]
        )
        for name, record in self.records.items():
            runs.add_metric([name], record.runs)
            failures.add_metric([name], record.failures)
            items.add_metric([name], record.items)
            seconds.add_metric([name], record.seconds)
            age.add_metric([name], time.monotonic() - record.last_success)
        yield from (runs, failures, items, seconds, age)
