"""`python -m tests.labs.bench.housekeeping`: what locks cost, and how late 100,000 tasks are that fall due at once.

    python -m tests.labs.bench.housekeeping locks due
    python -m tests.labs.bench.housekeeping due rq --tasks 20000

Everything runs on a fresh Redis. Beside the due tasks a process submits and claims all the time: moving them must not
keep others waiting. `rq` is the same number of tasks in as many queues, moved by RQ's own scheduler.
"""

from __future__ import annotations

import argparse
import logging
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

from redis import Redis
from rq import Queue
from rq.scheduler import RQScheduler

from firmq.shared.domain.clock import instant, instant_us
from firmq.shared.domain.lock import Lock
from firmq.shared.domain.task import NewTask, new_task_id
from firmq.shared.redis.client import connect
from firmq.shared.redis.scripts import Scripts
from firmq.shared.stores import maintenance
from firmq.shared.stores.locks import RedisLocks
from firmq.shared.stores.queues import Queues
from tests.labs.bench import server
from tests.support.attempt_ends import claiming
from tests.support.keys import keys

ROOT = Path(__file__).resolve().parents[3]
QUEUES = {f"q{number:02}": 1 for number in range(50)}


def percentiles(seconds: list[float]) -> str:
    """Median, p99 and worst in milliseconds."""
    ordered = sorted(seconds)
    p99 = ordered[int(len(ordered) * 0.99)]
    return f"p50 {statistics.median(ordered) * 1e3:.2f} ms, p99 {p99 * 1e3:.2f} ms, worst {ordered[-1] * 1e3:.2f} ms"


# --- What a lock costs -------------------------------------------------------------------------------------------


def measure_locks(url: str, rounds: int = 5000) -> None:
    """Taking and giving back, which is what a round of a job pays; and the check inside a script."""
    scripts = Scripts(connect(url))
    locks = RedisLocks(scripts, "hk-1")
    lock = Lock(name="unlock", at_most=timedelta(seconds=30))
    taken, checked, unchecked = [], [], []
    for _ in range(rounds):
        began = time.perf_counter()
        held = locks.acquire(lock)
        assert held is not None
        acquired = time.perf_counter()
        maintenance.promote(scripts, "normal", 10, held.fencing_token)
        stepped = time.perf_counter()
        maintenance.promote(scripts, "normal", 10)
        plain = time.perf_counter()
        held.release()
        taken.append(acquired - began + time.perf_counter() - plain)
        checked.append(stepped - acquired)
        unchecked.append(plain - stepped)
    locks.stop()
    print(f"lock taken and given back: {percentiles(taken)}")
    print(f"step with its permit:      {percentiles(checked)}")
    print(f"step without:              {percentiles(unchecked)}")


# --- Many tasks due at once --------------------------------------------------------------------------------------


@contextmanager
def housekeeper(url: str, folder: Path) -> Iterator[None]:
    environment = {
        **os.environ,
        "REDIS_URL": url,
        "QUEUES": ",".join(f"{name}:{weight}" for name, weight in QUEUES.items()),
        "DEFAULT_PRIORITY": "q00",
        "HOUSEKEEPER_DISTRIBUTED_EXECUTION_ENABLED": "true",
        "HOUSEKEEPER_METRICS_PORT": "0",
        "LOG_LEVEL": "WARNING",
    }
    with open(folder / "housekeeper.log", "wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "firmq", "housekeeper"], env=environment, cwd=ROOT, stdout=log, stderr=log
        )
    try:
        yield
    finally:
        process.terminate()
        process.wait(10)


def store_due(scripts: Scripts, count: int, due_us: int) -> list[str]:
    queues, names = Queues(scripts, QUEUES), list(QUEUES)
    tasks = [
        NewTask(id=new_task_id(), type="noop", data="null", queue=names[at % len(names)], run_at=instant(due_us))
        for at in range(count)
    ]
    queues.submit(tasks)
    return [task.id for task in tasks]


class Beside(threading.Thread):
    """Goes on with submissions and claims, and notes how long each took."""

    def __init__(self, url: str) -> None:
        super().__init__(daemon=True)
        self.scripts = Scripts(connect(url))
        self.task_factory: list[float] = []
        self.claims: list[float] = []
        self.ended = threading.Event()

    def run(self) -> None:
        queues = Queues(self.scripts, QUEUES)
        quotas = [part for name in QUEUES for part in (name, 1)]
        while not self.ended.wait(0.004):
            task = NewTask(id=new_task_id(), type="noop", data="null", queue="q00")
            self._time(self.task_factory, partial(queues.submit, [task]))
            arguments = claiming("w1", new_task_id(), 60_000_000, 4, 1 << 20, *quotas)
            self._time(self.claims, partial(self.scripts.call, "claim", *arguments))

    def _time(self, into: list[float], act: Callable[[], object]) -> None:
        began = time.perf_counter()
        act()
        into.append(time.perf_counter() - began)


@dataclass(frozen=True, slots=True, kw_only=True)
class Moved:
    """How it went; all in seconds."""

    took: float
    lateness: list[float]
    task_factory: list[float]
    claims: list[float]

    def __str__(self) -> str:
        return "\n".join(
            (
                f"{len(self.lateness)} tasks in {len(QUEUES)} queues due at once: all moved after {self.took:.2f} s",
                f"lateness: {percentiles(self.lateness)}",
                f"{len(self.task_factory)} submissions meanwhile: {percentiles(self.task_factory)}",
                f"{len(self.claims)} claims meanwhile: {percentiles(self.claims)}",
            )
        )


def measure_due(url: str, folder: Path, count: int) -> Moved:
    scripts = Scripts(connect(url, timeout=10))
    began = time.monotonic()
    store_due(scripts, count // 100, scripts.now_us())  # a sample, which is not scheduled
    planned = max(8.0, 250 * (time.monotonic() - began))
    due_us = scripts.now_us() + int(planned * 1e6)
    ids = store_due(scripts, count, due_us)
    left = (due_us - scripts.now_us()) / 1e6
    assert left > 1, "storing took longer than planned"
    with housekeeper(url, folder):
        time.sleep(left - 0.5)
        beside = Beside(url)
        beside.start()
        while any(scripts.redis.zcard(keys.scheduled(name)) for name in QUEUES):
            time.sleep(0.02)
        took = (scripts.now_us() - due_us) / 1e6
        beside.ended.set()
        beside.join()
    late = lateness(scripts.redis, ids)
    return Moved(took=took, lateness=late, task_factory=beside.task_factory, claims=beside.claims)


def lateness(redis: Redis, ids: list[str]) -> list[float]:
    """From each task's due time to the moment it was moved, by Redis' clock."""
    found = []
    for at in range(0, len(ids), 1000):
        with redis.pipeline(transaction=False) as pipeline:
            for task_id in ids[at : at + 1000]:
                pipeline.hmget(keys.rq_job(task_id), "enqueued_at", "due_at")
            found += [_seconds_late(moved.decode(), float(due)) for moved, due in pipeline.execute()]
    return found


def _seconds_late(moved: str, due_us: float) -> float:
    return (instant_us(datetime.fromisoformat(moved)) - due_us) / 1e6


# --- RQ's own ----------------------------------------------------------------------------------------------------


def measure_rq(url: str, count: int) -> None:
    with Redis.from_url(url) as redis:
        names = list(QUEUES)
        queues = [Queue(name, connection=redis) for name in names]
        at = instant(time.time() * 1e6) + timedelta(seconds=1)
        for number in range(count):
            queues[number % len(names)].enqueue_at(at, "tests.support.handlers.noop")
        scheduler: Any = RQScheduler(queues, connection=redis, interval=1, logging_level=logging.WARNING)
        scheduler.acquire_locks()
        began = time.perf_counter()
        while sum(queue.scheduled_job_registry.get_job_count(cleanup=False) for queue in queues):
            scheduler.enqueue_scheduled_jobs()
        took = time.perf_counter() - began
        scheduler.release_locks()
    print(f"{count} jobs in {len(QUEUES)} queues, RQ's scheduler: {took:.1f} s, {count / took:.0f}/s")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="*", choices=["locks", "due", "rq"], default=["locks", "due"])
    parser.add_argument("--tasks", type=int, default=100_000)
    parser.add_argument("--redis-server")
    given = parser.parse_args()
    for what in given.what:
        with tempfile.TemporaryDirectory() as folder:
            place = Path(folder)
            with server.running(server.find_binary(given.redis_server), place, "everysec") as redis:
                if what == "locks":
                    measure_locks(redis.url)
                elif what == "due":
                    print(measure_due(redis.url, place, given.tasks))
                else:
                    measure_rq(redis.url, given.tasks)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
