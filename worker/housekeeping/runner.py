"""Runs the jobs, each at its interval, in a thread of its own, so that a slow one does not delay the rest."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from redis.exceptions import RedisError

from firmq.shared.errors import FirmqError, LockLost, StepRefused
from firmq.shared.failpoints import failpoint
from firmq.shared.observability.tracing import Tracing
from firmq.shared.stores.locks import HeldLock, Locks
from firmq.worker.housekeeping.lock_metrics import LockMetrics
from firmq.worker.housekeeping.locking import LockStrategy
from firmq.worker.housekeeping.registry import HousekeepingJob, RunResult

log = logging.getLogger(__name__)


@dataclass(slots=True)
class JobRecord:
    """History of a job. The last three are on the monotonic clock: last pass of its loop, last answer of Redis (or
    None), last success here."""

    runs: int = 0
    skips: int = 0
    failures: int = 0
    items: int = 0
    seconds: float = 0.0
    failing: bool = False
    last_pass: float = field(default_factory=time.monotonic)
    last_answer: float | None = None
    last_success: float = field(default_factory=time.monotonic)


class Housekeeper(Collector):
    """The jobs of one process, each with its lock strategy."""

    def __init__(
        self,
        instance: str,
        strategies: Mapping[HousekeepingJob, LockStrategy],
        locks: Locks,
        lock_metrics: LockMetrics,
        tracing: Tracing,
    ) -> None:
        self.tracing = tracing
        self.instance = instance
        self.strategies = strategies
        self.locks = locks
        self.lock_metrics = lock_metrics
        self.records = {job.name: JobRecord() for job in strategies}
        self.stopped = threading.Event()
        self._threads = [
            threading.Thread(target=self._keep, args=(job,), name=f"housekeeping {job.name}", daemon=True)
            for job in strategies
        ]

    @property
    def jobs(self) -> tuple[HousekeepingJob, ...]:
        return tuple(self.strategies)

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self, patience: float = 5.0) -> None:
        """Ends after the current run."""
        self.stopped.set()
        until = time.monotonic() + patience
        for thread in self._threads:
            thread.join(max(0.0, until - time.monotonic()))

    def run_once(self, job: HousekeepingJob) -> int:
        """Runs a job if it gets its lock; repeats under the same lock while there is more. Returns how many items."""
        record = self.records[job.name]
        record.last_pass = time.monotonic()
        held = self.strategies[job].begin()
        if held is None:
            record.skips += 1
            if self.locks.reachable:
                record.last_answer = time.monotonic()
            return 0
        failpoint("housekeeper.locked")
        try:
            this = self._run(job, held, record)
            done = this.done
            while this.more and not self.stopped.is_set():
                record.last_pass = time.monotonic()
                this = self._run(job, held, record)
                done += this.done
            return done
        finally:
            failpoint("housekeeper.unlocking")
            self.strategies[job].end(held)

    def silent_seconds(self) -> dict[str, float | None]:
        """Returns how long ago the loop of each job last passed, in seconds."""
        return self._since(lambda record: record.last_pass)

    def unanswered_seconds(self) -> dict[str, float | None]:
        """Returns how long ago each job last had an answer of Redis, in seconds; None for never."""
        return self._since(lambda record: record.last_answer)

    def _since(self, moment: Callable[[JobRecord], float | None]) -> dict[str, float | None]:
        now = time.monotonic()
        moments = {name: moment(record) for name, record in self.records.items()}
        return {name: None if at is None else round(now - at, 1) for name, at in moments.items()}

    def _run(self, job: HousekeepingJob, held: HeldLock, record: JobRecord) -> RunResult:
        """Does one run, counted and timed; an error is logged, not raised."""
        started, started_ns = time.monotonic(), time.time_ns()
        this = RunResult()
        trouble: BaseException | None = None
        try:
            this = job.run(held)
            record.last_answer = record.last_success = time.monotonic()
            record.failing = False
        except LockLost as error:
            trouble = error
            self._stopped_by_lock(job, record, error)
        except (RedisError, OSError, FirmqError) as error:
            record.failures += 1
            trouble = None if record.failing else error
            # Logged as an error once: during an outage of Redis every run of every job fails.
            log.log(
                logging.DEBUG if record.failing else logging.ERROR, "housekeeping job %s failed: %s", job.name, error
            )
            record.failing = True
        except Exception as error:
            trouble = error
            # The error concerns one job: its thread continues, and so do the others.
            record.failures += 1
            log.exception("housekeeping job %s failed", job.name)
        self.tracing.housekeeping(job.name, started_ns, this.done, trouble)
        record.runs += 1
        record.items += this.done
        record.seconds += time.monotonic() - started
        if this.done:
            log.debug("housekeeping job %s: %d done", job.name, this.done)
        return this

    def _stopped_by_lock(self, job: HousekeepingJob, record: JobRecord, error: LockLost) -> None:
        record.failures += 1
        refused = isinstance(error, StepRefused)
        count = self.lock_metrics.refused if refused else self.lock_metrics.stopped
        count(job.name)
        log.warning("housekeeping job %s stopped: %s", job.name, error, extra={"refused": refused})

    def _keep(self, job: HousekeepingJob) -> None:
        while not self.stopped.is_set():
            try:
                self.run_once(job)
            except Exception:
                # An error outside of its runs: the lock. Its thread continues.
                self.records[job.name].failures += 1
                log.exception("housekeeping job %s could not take its lock", job.name)
            self.stopped.wait(job.interval.total_seconds())

    def collect(self) -> Iterable[Metric]:
        records = self.records.items()
        for name, text in (
            ("runs", "Runs of a housekeeping job."),
            ("skips", "Runs left to another instance."),
            ("failures", "Runs that failed."),
            ("items", "Tasks that a job handled."),
            ("seconds", "Time spent in a job."),
        ):
            # The label is not called job: Prometheus uses that name for the scraped target.
            family = CounterMetricFamily(f"firmq_housekeeping_{name}", text, labels=["name"])
            for job, record in records:
                family.add_metric([job], getattr(record, name))
            yield family
        age = GaugeMetricFamily(
            "firmq_housekeeping_last_success_age_seconds", "Time since a job last succeeded here.", labels=["name"]
        )
        interval = GaugeMetricFamily(
            "firmq_housekeeping_interval_seconds", "Time between runs of a job.", labels=["name"]
        )
        for each in self.jobs:
            age.add_metric([each.name], time.monotonic() - self.records[each.name].last_success)
            interval.add_metric([each.name], each.interval.total_seconds())
        yield age
        yield interval
