"""A worker at work for long and a worker without work: neither grows, neither is dear.

With TEST_LONG=1 the long work is 200,000 tasks instead of 40,000.
"""

from __future__ import annotations

import os
import time
from functools import partial

import psutil
import pytest

from firmq.shared.domain.task import TaskState
from tests.support.figures import judge
from tests.support.harness import System, wait_until

pytestmark = pytest.mark.timeout(900)

ROUND = 50_000 if os.environ.get("TEST_LONG") == "1" else 10_000


def memory(pids: list[int]) -> int:
    return sum(psutil.Process(pid).memory_info().rss for pid in pids)


def _completed(system: System, count: int) -> bool:
    return system.records.counts()[TaskState.COMPLETED] == count


def test_a_worker_that_ran_tens_of_thousands_of_tasks_has_not_grown(system: System) -> None:
    worker = system.start_worker(WORKER_EXECUTORS="2")
    pids = [worker.pid, *system.executors(worker)]
    sizes = []
    for round_ in range(1, 5):
        system.submit_many([("noop", "null")] * ROUND)
        wait_until(partial(_completed, system, ROUND * round_), "all ran", 200)
        sizes.append(memory(pids))
    assert [worker.pid, *system.executors(worker)] == pids, "nothing was replaced on the way"
    growth = sizes[-1] - sizes[0]
    print(f"after {ROUND:,} to {4 * ROUND:,} tasks: {', '.join(f'{size / 2**20:.1f} MiB' for size in sizes)}")
    assert growth < 2 << 20


def test_an_idle_worker_costs_few_commands_and_hardly_any_processor(system: System) -> None:
    worker = system.start_worker(WORKER_EXECUTORS="2")
    processes = [psutil.Process(pid) for pid in (worker.pid, *system.executors(worker))]

    def spent() -> tuple[int, float]:
        statistics = system.redis.info("commandstats")
        cpu = sum(sum(process.cpu_times()[:2]) for process in processes)
        return sum(each["calls"] for each in statistics.values()), cpu

    def idle_for(seconds: float) -> tuple[float, float]:
        """Commands a second and cores."""
        before, started = spent(), time.monotonic()
        time.sleep(seconds)  # what is measured here is doing nothing
        after, lasted = spent(), time.monotonic() - started
        return (after[0] - before[0]) / lasted, (after[1] - before[1]) / lasted

    idle_for(3)  # what belongs to its start (the second executor's, too)
    commands, cores = idle_for(20)  # a whole number of heartbeats and of claims
    print(f"idle: {commands:.1f} commands a second, {cores:.2%} of a core")
    assert commands <= 8
    judge("a second of an idle worker on the processor", cores, 0.005)
