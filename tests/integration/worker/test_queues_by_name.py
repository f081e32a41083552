"""Workers take from queues that are created while they run."""

from __future__ import annotations

import time

import pytest

from firmq.shared.domain.task import TaskState
from tests.support.figures import judge
from tests.support.harness import System
from tests.support.keys import keys

SOON = 2.0
"""Seconds within which a worker takes the first task of a new queue."""


def taken_soon(system: System, *task_ids: str, most: float = SOON) -> None:
    longest = max(waited(system, each) for each in task_ids)
    assert longest < 10 * most
    judge("the first task of a new queue waited", longest, most)


def waited(system: System, task_id: str) -> float:
    [attempt] = system.ended(task_id).attempts
    assert attempt.started_at is not None
    created = system.records.get(task_id).summary.created_at
    assert created is not None
    return (attempt.started_at - created).total_seconds()


@pytest.mark.parametrize("queues", ["", "gpu-*:5, default"], ids=["all queues", "a pattern"])
def test_tasks_of_new_queues_run_within_seconds_and_without_a_restart(system: System, queues: str) -> None:
    system.start_worker(WORKER_QUEUES=queues)
    taken_soon(system, system.submit("noop", queue="gpu-1"))
    taken_soon(system, *system.submit_many([("noop", "null")] * 50, queue="gpu-2"))
    taken_soon(system, system.submit("noop", queue="gpu-3", fair_key="tenant"))
    taken_soon(system, system.submit("noop", queue="gpu-1"))


def test_a_busy_worker_takes_from_a_new_queue_too(system: System) -> None:
    system.start_worker(WORKER_EXECUTORS="1")
    line = system.submit_many([("sleep", '{"seconds": 0.2}')] * 3000)
    time.sleep(1)
    taken_soon(system, system.submit("noop", queue="gpu"), most=2 * SOON)
    assert system.records.state(line[-1]) is TaskState.PENDING, "it did not wait for those before it"


def test_a_worker_leaves_other_queues_alone(system: System) -> None:
    system.start_worker(WORKER_QUEUES="gpu-*")
    other, mine = system.submit("noop", queue="mail"), system.submit("noop", queue="gpu-1")
    system.ended(mine)
    time.sleep(1)
    assert system.records.state(other) is TaskState.PENDING


def test_strict_order_empties_one_queue_before_the_next(system: System) -> None:
    later = system.submit_many([("noop", "null")] * 30, queue="low")
    first = system.submit_many([("noop", "null")] * 30, queue="gpu")
    system.start_worker(WORKER_QUEUES="gpu, low", QUEUE_ORDER="strict", WORKER_EXECUTORS="1")
    started = {each: str(system.ended(each).attempts[0].started_at) for each in (*first, *later)}
    assert max(started[each] for each in first) <= min(started[each] for each in later)


def test_an_idle_worker_asks_redis_little_with_many_queues(system: System) -> None:
    for at in range(200):
        system.redis.zadd(keys.QUEUES, {f"queue-{at}": time.time() * 1e6})
    system.start_worker()
    time.sleep(6)
    before, began = system.redis.info("stats")["total_commands_processed"], time.monotonic()
    time.sleep(16)
    after = system.redis.info("stats")["total_commands_processed"]
    assert (after - before) / (time.monotonic() - began) < 8
