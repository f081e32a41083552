"""Limits with four real workers: measured by the handlers themselves, while others work and while workers die."""

from __future__ import annotations

import os
import signal
import statistics
import time
from datetime import datetime

import psutil
import pytest

from firmq.shared.domain.limit import read_limit
from firmq.shared.domain.lock import FencingToken
from firmq.shared.domain.task import TaskDetail, TaskState
from firmq.shared.redis.client import text
from firmq.shared.stores import maintenance
from firmq.shared.stores.limits import Limits
from tests.support.figures import judge
from tests.support.harness import WEIGHTS, System, wait_until
from tests.support.keys import keys


@pytest.fixture
def four(system: System) -> System:
    """A system with four workers of two executors each."""
    for _ in range(4):
        system.start("worker", WORKER_EXECUTORS="2")
    wait_until(
        lambda: len([each for each in system.workers.all() if each.executors]) == 4, "four workers are there", 60
    )
    return system


def submit(system: System, count: int, seconds: float, name: str = "m", **options: str) -> list[str]:
    data = f'{{"name": "{name}", "seconds": {seconds}}}'
    return system.submit_many([("measured", data)] * count, **options)


def most_at_once(system: System, name: str = "m") -> int:
    return max(int(each) for each in system.redis.lrange(f"{keys.prefix}firmq:measured:{name}:counts", 0, -1))


def starts(system: System, name: str = "m") -> list[float]:
    return sorted(float(each) for each in system.redis.lrange(f"{keys.prefix}firmq:measured:{name}:starts", 0, -1))


def waits(system: System, count: int) -> list[float]:
    """How long tasks without a limit waited, submitted one by one."""
    ids = []
    for _ in range(count):
        ids.append(system.submit("noop"))
        time.sleep(0.01)
    return [_wait(system.ended(task_id)) for task_id in ids]


def _wait(task: TaskDetail) -> float:
    created, started = task.summary.created_at, task.attempts[0].started_at
    assert created
    assert started
    return (started - created).total_seconds()


def test_four_workers_never_run_more_than_the_limit(four: System) -> None:
    Limits(four.scripts).put("type:measured", read_limit({"concurrency": 3}))
    submit(four, 250, 0.02)
    four.all_ended()
    assert most_at_once(four) == 3, "the limit was reached and never exceeded"
    assert len(starts(four)) == 250


def test_a_declared_limit_holds_once_its_worker_runs(system: System) -> None:
    system.start("worker", TASK_MODULES="tests.support.limited_handlers", WORKER_EXECUTORS="2")
    limits = Limits(system.scripts)
    wait_until(lambda: limits.get("type:two-at-once") is not None, f"its limit holds\n{system.logs()}", 30)
    found = limits.get("type:two-at-once")
    assert found
    assert (found.limit, found.source) == (read_limit({"concurrency": 2, "rate": "50/s", "burst": 10}), "handler")
    seen = system.workers.all()[0].last_heartbeat_at
    wait_until(lambda: system.workers.all()[0].last_heartbeat_at != seen, f"it tells of itself\n{system.logs()}", 30)


def test_others_wait_as_long_with_a_line_of_limited_tasks_as_without(four: System) -> None:
    """Three executors are held all the time, so the line never moves: whoever stood behind it would wait for ever.

    With and without take turns, so a busy machine holds up both alike. Of the medians of a hundred each, the one may be
    twice the other and 20 ms: apart by what a machine does to itself, not by what a line would.
    """
    Limits(four.scripts).put("type:slowly", read_limit({"concurrency": 3}))
    holding = four.submit_many([("slowly", '{"seconds": 600}')] * 3)
    wait_until(lambda: four.redis.scard(keys.slots("type:slowly")) == 3, "three run")
    alone: list[float] = []
    beside: list[float] = []
    for _ in range(5):
        alone += waits(four, 20)
        line = four.submit_many([("slowly", '{"seconds": 0}')] * 100)
        beside += waits(four, 20)
        assert {four.queues.cancel(each, "") for each in line} == {TaskState.CANCELLED}, "none of them has started"
    assert {four.records.state(each) for each in holding} == {TaskState.RUNNING}
    assert statistics.median(beside) < 2 * statistics.median(alone) + 0.02, (alone, beside)


def test_the_rate_is_met_within_five_percent_and_a_key_holds_over_four_workers(four: System) -> None:
    submit(four, 40, 0.02, name="warming")
    four.all_ended()
    rate = burst = 10
    Limits(four.scripts).put("type:measured", read_limit({"rate": f"{rate}/s", "burst": burst}))
    Limits(four.scripts).put("key:partner", read_limit({"concurrency": 2}))
    ids = submit(four, burst + rate * 6, 0.02, limit_key="partner")
    four.all_ended()
    assert most_at_once(four) <= 2
    taken = sorted(taken_at(four, each) for each in ids)
    allowed = [(count - burst, at - taken[0]) for count, at in enumerate(taken, 1) if count > 3 * burst]
    # Never more than that, to the start; and as many: one start that a busy machine held up does not sway the middle.
    assert all(count <= rate * seconds + 0.01 for count, seconds in allowed), allowed
    pace = statistics.median(count / seconds for count, seconds in allowed)
    assert rate / 2 < pace < rate * 1.05
    judge("a start of ten in a second took", 1 / pace, 1 / rate / 0.95)


def taken_at(system: System, task_id: str) -> float:
    """When a task was claimed, by Redis' clock, which is the one that limits go by."""
    stamp = text(system.redis.hget(keys.rq_job(task_id), "started_at"))
    return datetime.fromisoformat(stamp).timestamp()


def test_killed_workers_free_their_slots_once_and_the_limit_holds(four: System) -> None:
    four.start_housekeeper()
    Limits(four.scripts).put("type:measured", read_limit({"concurrency": 4}))
    ids = submit(four, 120, 0.05)
    for number, victim in enumerate(four.processes[:2], 1):
        _wait_for_starts(four, 25 * number)
        os.kill(victim.pid, signal.SIGKILL)
        victim.wait()
        _wait_for_end(four, victim.pid)
        four.start("worker", WORKER_EXECUTORS="2")
    counts = four.all_ended()
    assert counts[TaskState.COMPLETED] == len(ids)
    assert most_at_once(four) <= 4
    assert four.redis.scard(keys.slots("type:measured")) == 0
    wrong = [
        maintenance.check_consistency(four.scripts, list(WEIGHTS), 3_000_000, 100, FencingToken())[1] for _ in range(5)
    ]
    assert not any("slot" in each for each in wrong)


def _wait_for_starts(system: System, count: int) -> None:
    wait_until(lambda: len(starts(system)) > count, f"{count} have run")


def _wait_for_end(system: System, worker_pid: int) -> None:
    killed_at = time.time()
    wait_until(lambda: not still_there(system, worker_pid, killed_at), "its executors are gone")


def is_alive(pid: int, killed_at: float) -> bool:
    """Whether a process runs that is not a later one of the same number."""
    try:
        process = psutil.Process(pid)
        return process.status() != psutil.STATUS_ZOMBIE and process.create_time() < killed_at
    except psutil.NoSuchProcess:
        return False


def still_there(system: System, worker_pid: int, killed_at: float) -> bool:
    """Whether an executor of a dead worker still works; what it did not sign off itself is signed off here."""
    present = {text(each) for each in system.redis.smembers(f"{keys.prefix}firmq:measured:m:now")}
    of_victim = {each for each in present if each.startswith(f"{worker_pid}:")}
    living = {each for each in of_victim if is_alive(int(each.split(":")[1]), killed_at)}
    if of_victim - living:
        system.redis.srem(f"{keys.prefix}firmq:measured:m:now", *(of_victim - living))
    return bool(living)
