"""Kills workers and Redis while they run the jobs of an RQ program, and then asks RQ what became of each job."""

from __future__ import annotations

import os
import random
import signal
import time
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from subprocess import Popen
from typing import Any

from redis.exceptions import RedisError
from rq import Queue
from rq.job import Job

from firmq.shared.local.embedded_redis import EmbeddedRedis
from firmq.shared.redis.client import connect
from firmq.worker.executors.process_tree import descendants
from tests.labs.rq_jobs.program import ALLOWED, CALLBACK_OF, enqueue, job_id, kind_of
from tests.support.harness import running_system, wait_until

QUEUE = "imports"
AT_ONCE = 500
# This laboratory kills far more often than the world does: a job that runs at several kills is to run again.
SETTINGS = {"RQ_QUEUES": QUEUE, "RQ_ALLOW": ALLOWED, "RQ_PICKLE": "true", "WORKER_EXECUTORS": "2", "MAX_CRASHES": "100"}
PATIENCE = 120.0
"""Seconds without any end of a job after which those that have none are lost. RQ itself looks for the jobs of a killed
worker after 90."""


@dataclass(slots=True)
class Findings:
    """What a run has shown."""

    seconds: float
    kills: Counter[str]
    jobs: int
    statuses: Counter[str]
    wrong: list[int]
    """Jobs that did not end as their function did, or whose result RQ reads as another."""
    never_ran: int
    repeated: int
    without_callback: int

    @property
    def well(self) -> bool:
        return not (self.wrong or self.never_ran or self.without_callback)

    def __str__(self) -> str:
        kills = ", ".join(f"{count} {name}" for name, count in sorted(self.kills.items()))
        return (
            f"{self.jobs} jobs, {self.seconds:.0f} s, killed: {kills}\n"
            f"statuses {dict(self.statuses)}\n"
            f"lost or wrong {len(self.wrong)} {self.wrong[:5] or ''}\n"
            f"never ran {self.never_ran}, ran more than once {self.repeated}, without callback {self.without_callback}"
        )


class Laboratory:
    """One run; `stock` runs the jobs on RQ's own worker."""

    def __init__(self, folder: Path, jobs: int, *, stock: bool = False) -> None:
        self.jobs = jobs
        self.stock = stock
        self.notes = folder / "notes"
        self.notes.touch()
        self.folder = folder
        self.kills: Counter[str] = Counter()

    def run(self, kills: int, restarts: int) -> Findings:
        """Runs all jobs meanwhile, and returns what was found."""
        begun = time.monotonic()
        with (
            EmbeddedRedis(data_dir=self.folder / "redis") as self.server,
            connect(self.server.url, timeout=2) as self.redis,
            running_system(self.redis, self.server.url, self.folder, RQ_LAB_NOTES=str(self.notes)) as self.system,
        ):
            self._enqueue()
            if not self.stock:
                self.system.start_housekeeper()
            self._kill_workers(kills, set(random.sample(range(kills), restarts)))
            self._start_worker()
            self._wait()
            return self._findings(time.monotonic() - begun)

    # --- the run ---

    def _enqueue(self) -> None:
        queue = Queue(QUEUE, connection=self.redis)
        for first in range(0, self.jobs, AT_ONCE):
            enqueue(queue, range(first, min(first + AT_ONCE, self.jobs)))

    def _kill_workers(self, kills: int, with_redis: set[int]) -> None:
        """Kills each worker after its share of the jobs has ended, at the latest after some seconds."""
        for at in range(kills):
            worker = self._start_worker()
            share = int(self.jobs * (at + random.random()) / (kills + 1))
            _wait_briefly(lambda share=share: self._ended() >= share)
            kill_all(worker)
            self.kills["workers"] += 1
            if at in with_redis:
                self.server.kill()
                self.server.start()
                self.kills["Redis"] += 1

    def _start_worker(self) -> Popen[bytes]:
        if not self.stock:
            return self.system.start_worker(**SETTINGS)
        return self.system.start("rq.cli", "worker", "--url", self.server.url, "--quiet", QUEUE)

    def _ended(self) -> int:
        try:
            return int(self.redis.zcard(f"rq:finished:{QUEUE}") + self.redis.zcard(f"rq:failed:{QUEUE}"))
        except RedisError:
            return 0

    def _wait(self) -> None:
        """Waits until all jobs have ended, or none has for long."""
        ended, since = -1, time.monotonic()
        while ended < self.jobs and time.monotonic() - since < PATIENCE:
            if (now := self._ended()) != ended:
                ended, since = now, time.monotonic()
            time.sleep(0.1)

    # --- its end ---

    def _findings(self, seconds: float) -> Findings:
        statuses: Counter[str] = Counter()
        wrong = []
        for first in range(0, self.jobs, AT_ONCE):
            numbers = range(first, min(first + AT_ONCE, self.jobs))
            jobs = Job.fetch_many([job_id(number) for number in numbers], connection=self.redis)
            for number, job in zip(numbers, jobs, strict=True):
                statuses[str(job.get_status(refresh=False).value) if job else "gone"] += 1
                if not job or not _as_it_should_be(job, number):
                    wrong.append(number)
        ran, called = self._noted("ran"), self._noted("success") | self._noted("failure")
        return Findings(
            seconds=seconds,
            kills=self.kills,
            jobs=self.jobs,
            statuses=statuses,
            wrong=wrong,
            never_ran=self.jobs - len(ran),
            repeated=sum(count > 1 for count in ran.values()),
            without_callback=sum(kind_of(number) in CALLBACK_OF and not called[number] for number in range(self.jobs)),
        )

    def _noted(self, what: str) -> Counter[int]:
        lines: Iterable[list[str]] = map(str.split, self.notes.read_text().splitlines())
        return Counter(int(number) for noted, number in lines if noted == what)


def kill_all(worker: Popen[bytes]) -> None:
    """Kills a worker and what it started, as the end of its machine does."""
    started = descendants(worker.pid)
    worker.kill()
    for pid in started:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    worker.wait()


def _as_it_should_be(job: Job, number: int) -> bool:
    latest: Any = job.latest_result()
    if latest is None:
        return False
    if kind_of(number) == "failing":
        return job.is_failed and f"ValueError: {number}" in latest.exc_string
    return job.is_finished and latest.return_value == number


def _wait_briefly(condition: Any) -> None:
    with suppress(AssertionError):
        wait_until(condition, "enough jobs have ended", 20)
