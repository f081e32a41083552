"""Workers are replaced one by one under load: nothing is lost, cut off or run twice.

Every worker gets SIGTERM while it runs tasks of 50 ms to 5 s, and its successor is started at the same time, as a
rolling update does it. With TEST_LONG=1 this goes on for two minutes instead of some seconds.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest

from firmq.shared.domain.task import Outcome, TaskState
from tests.support.harness import System, wait_until

LONG = os.environ.get("TEST_LONG") == "1"
SECONDS = 120.0 if LONG else 12.0
LONGEST = 5.0 if LONG else 2.0
GRACE = "60"
LEASE = "30"  # nobody dies here: a worker that stands still for some seconds loses nothing
WORKERS = 3
AHEAD = 12
"""How many tasks wait or run at any time: enough that every worker is always busy."""


class Load:
    """Keeps a dozen tasks of mixed length on their way; each notes its runs in a file."""

    def __init__(self, system: System, file: Path) -> None:
        self.system = system
        self.file = file
        self.ids: list[str] = []
        self._random = random.Random(7)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._submit)

    def __enter__(self) -> Load:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _submit(self) -> None:
        while not self._stop.wait(0.1):
            counts = self.system.records.counts()
            if counts[TaskState.PENDING] < AHEAD:
                self.ids += self.system.submit_many([("note", self._data()) for _ in range(AHEAD)])

    def _data(self) -> str:
        # Most are short; a few take as long as a grace period must outlast.
        seconds = min(LONGEST, 0.05 / self._random.uniform(0.05 / LONGEST, 1.0))
        return json.dumps({"file": str(self.file), "seconds": round(seconds, 3)})


@pytest.mark.timeout(600)
def test_workers_are_replaced_one_by_one_and_every_task_runs_once(system: System, tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    system.start_housekeeper()
    pool = [system.start("worker", DRAIN_GRACE=GRACE, LEASE_TIME=LEASE, WORKER_EXECUTORS="2") for _ in range(WORKERS)]
    wait_until(lambda: len(system.workers.all()) == WORKERS, f"the workers are there\n{system.logs()}", 60)
    stopped: list[tuple[int, float]] = []
    with Load(system, ran) as load:
        end = time.monotonic() + SECONDS
        while time.monotonic() < end or len(stopped) < WORKERS:
            stopped.append(_replace_the_oldest(system, pool))
    counts = system.all_ended(120)
    details = [system.records.get(each) for each in load.ids]
    attempts = [attempt for detail in details for attempt in detail.attempts]
    runs = Counter(line.split()[0] for line in ran.read_text().splitlines())
    print(
        f"{len(stopped)} workers replaced in {SECONDS:g} s, slowest stop {max(took for _, took in stopped):.1f} s; "
        f"{len(load.ids)} submitted, {counts[TaskState.COMPLETED]} completed, {sum(runs.values())} runs"
    )
    assert counts[TaskState.COMPLETED] == len(load.ids) == len(runs)
    assert set(runs.values()) == {1}
    assert Counter(attempt.outcome for attempt in attempts) == {Outcome.COMPLETED: len(load.ids)}
    assert {status for status, _ in stopped} == {0}
    assert max(took for _, took in stopped) < float(GRACE)


def _replace_the_oldest(system: System, pool: list[subprocess.Popen[bytes]]) -> tuple[int, float]:
    """Stops the first worker in order while its successor starts; its status, and how long its drain took."""
    leaving = pool.pop(0)
    _await_busy(system, [leaving.pid])
    began = time.monotonic()
    leaving.terminate()
    successor = system.start("worker", DRAIN_GRACE=GRACE, LEASE_TIME=LEASE, WORKER_EXECUTORS="2")
    pool.append(successor)
    status = leaving.wait(120)
    took = time.monotonic() - began
    wait_until(lambda: any(info.pid == successor.pid for info in system.workers.all()), "its successor is there", 60)
    return status, took


def _await_busy(system: System, pids: Sequence[int]) -> None:
    """A worker that does nothing is no test of a drain."""
    wait_until(
        lambda: any(info.pid in pids and info.running for info in system.workers.all()), "the worker runs something", 60
    )
