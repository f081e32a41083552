"""QUEUE_EXECUTORS: long tasks use at most so many executors of a worker, and the others stay free."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from firmq.shared.domain.limit import Limit
from firmq.shared.domain.task import TaskDetail, TaskState
from firmq.shared.stores.limits import Limits
from firmq.shared.stores.queues import Queues
from tests.support.attempt_ends import claiming
from tests.support.figures import judge
from tests.support.harness import System, wait_until
from tests.support.keys import keys
from tests.support.store import LEASE, WEIGHTS, Store

LONG = '{"seconds": 300}'
LOW_LATE = 2.0
"""Seconds within which a task starts that a worker was woken for; one that looks by itself may take four."""


@pytest.fixture
def low(store: Store) -> Store:
    """With a queue more."""
    store.queues = Queues(store.scripts, {**WEIGHTS, "low": 1})
    return store


def claim(store: Store, want: int, bounds: str, token: str = "t", worker: str = "w") -> list[str]:
    """Claims from normal and low, where `bounds` is the quota of low and the most that it may give."""
    quota, _, most = bounds.partition("/")
    options: Any = {"next_token": token + "+", "most": {"low": most}}
    order = claiming(worker, token, LEASE, want, 1 << 20, "normal", want, "low", quota, **options)
    reply = store.scripts.call("claim", *order)
    return [row[0].decode() for row in reply[3]]


def running(system: System, tasks: list[str]) -> list[str]:
    return [each for each in tasks if system.records.state(each) is TaskState.RUNNING]


def times(task: TaskDetail) -> tuple[datetime, datetime]:
    [attempt] = task.attempts
    assert attempt.started_at is not None
    assert attempt.ended_at is not None
    return attempt.started_at, attempt.ended_at


def waited(task: TaskDetail) -> float:
    [attempt] = task.attempts
    assert attempt.started_at is not None
    assert task.summary.created_at is not None
    return (attempt.started_at - task.summary.created_at).total_seconds()


def in_use(system: System) -> list[int]:
    return [each.in_use for worker in system.workers.all() for each in worker.queue_executors]


# --- what users see ---


@pytest.mark.parametrize("together", [True, False])
def test_quick_tasks_complete_while_long_ones_use_all_executors_of_their_queue(system: System, together: bool) -> None:
    system.start_worker(WORKER_EXECUTORS="2", QUEUE_EXECUTORS="low:1")
    if together:
        long = system.submit_many([("slowly", LONG)] * 4, "low")
    else:
        long = [system.submit("slowly", LONG, "low") for _ in range(4)]
    wait_until(lambda: running(system, long), "a long one runs")
    single = [system.ended(system.submit("noop"), seconds=20) for _ in range(20)]
    many = [system.ended(each, seconds=20) for each in system.submit_many([("noop", "null")] * 2000)]
    assert {task.summary.state for task in (*single, *many)} == {TaskState.COMPLETED}
    assert running(system, long) == long[:1]
    judge("a quick task beside long ones waited", sorted(waited(task) for task in single)[10], 1)


def test_without_the_setting_quick_tasks_wait_for_a_long_one_to_end(system: System, tmp_path: Path) -> None:
    system.start_worker(WORKER_EXECUTORS="2")
    data = json.dumps({"file": str(tmp_path / "ran"), "until": str(tmp_path / "until")})
    long = system.submit_many([("note-and-wait", data)] * 2, "low")
    wait_until(lambda: running(system, long) == long, "both executors run a long one")
    behind = system.submit("noop")
    time.sleep(1)
    assert system.records.state(behind) is TaskState.PENDING
    (tmp_path / "until").touch()
    quick = system.ended(behind)
    assert times(quick)[0] >= min(times(system.ended(each))[1] for each in long)


@pytest.mark.parametrize("most", [1, 2])
def test_long_tasks_run_in_order_never_more_at_once_and_each_as_soon_as_one_before_has_ended(
    system: System, most: int
) -> None:
    system.start_worker(WORKER_EXECUTORS="3", QUEUE_EXECUTORS=f"low:{most}")
    tasks = system.submit_many([("slowly", '{"seconds": 0.5}')] * 8, "low")
    spans = [times(system.ended(each)) for each in tasks]
    starts, ends = (sorted(each) for each in zip(*spans, strict=True))
    between = [(began - ended).total_seconds() for began, ended in zip(starts[most:], ends, strict=False)]
    assert min(between) > -0.1  # two attempts' clocks differ by a round trip
    assert max(between) < 20
    judge("the next long task began after one had ended", max(between), LOW_LATE)
    if most == 1:
        assert [began for began, _ in spans] == starts


def test_the_next_long_task_is_taken_at_once_after_a_slot_was_freed_while_nothing_else_came(
    system: System, tmp_path: Path
) -> None:
    system.start_worker(QUEUE_EXECUTORS="low:1", WORKER_EXECUTORS="2")
    data = json.dumps({"file": str(tmp_path / "ran"), "until": str(tmp_path / "until")})
    first = system.submit("note-and-wait", data, "low")
    wait_until(lambda: running(system, [first]), "the first runs")
    for each in system.submit_many([("noop", "null")] * 2):  # after these it listens for all queues but low
        system.ended(each)
    (tmp_path / "until").touch()
    system.ended(first)
    [second, third] = system.submit_many([("noop", "null")] * 2, "low")  # two are announced, not handed over
    for each in (second, third):
        late = waited(system.ended(each))
        assert late < 20
        judge("a long task waited for a free slot", late, LOW_LATE)


def test_each_worker_has_executors_of_its_own_for_the_queue(system: System) -> None:
    for _ in range(2):
        system.start_worker(QUEUE_EXECUTORS="low:1", WORKER_EXECUTORS="2")
    long = system.submit_many([("slowly", LONG)] * 5, "low")
    wait_until(lambda: running(system, long) == long[:2], "one runs at each worker")
    assert len({system.records.get(each).summary.worker for each in long[:2]}) == 2
    wait_until(lambda: in_use(system) == [1, 1], "the heartbeats say so")


def test_a_worker_that_drains_gives_its_long_task_to_the_next(system: System) -> None:
    workers = [system.start_worker(QUEUE_EXECUTORS="low:1", DRAIN_GRACE="0", WORKER_EXECUTORS="2") for _ in range(2)]
    places = {info.pid: info.name for info in system.workers.all()}
    long = system.submit_many([("slowly", LONG)] * 2, "low")
    wait_until(lambda: running(system, long) == long, "each worker runs one")
    given, kept = long
    next(each for each in workers if places[each.pid] == system.records.get(given).summary.worker).terminate()
    wait_until(lambda: system.records.state(given) is TaskState.PENDING, "it was given back")
    system.queues.cancel(kept, "enough")
    wait_until(lambda: running(system, long) == [given], "the other worker runs it")


def crash(system: System) -> None:
    system.ended(system.submit("crash", '{"how": "exit"}', "low"))


def time_out(system: System) -> None:
    system.ended(system.submit("hang", '{"how": "c"}', "low"))


def cancel(system: System) -> None:
    task = system.submit("slowly", LONG, "low")
    wait_until(lambda: running(system, [task]), "it runs")
    system.queues.cancel(task, "enough")
    system.ended(task)


def lose_the_lease(system: System) -> None:
    task = system.submit("slowly", LONG, "low")
    wait_until(lambda: running(system, [task]), "it runs")
    system.redis.hset(keys.rq_job(task), mapping={"token": "another's", "state": "completed"})


def wait_for_a_limit(system: System) -> None:
    Limits(system.scripts).put("type:slowly", Limit(concurrency=0))
    task = system.submit("slowly", LONG, "low")
    wait_until(lambda: system.redis.zscore(keys.throttled("low"), task), "it stands aside")


@pytest.mark.parametrize("end", [crash, time_out, cancel, lose_the_lease, wait_for_a_limit])
def test_however_a_task_ends_its_executor_is_free_for_the_next_of_its_queue(
    system: System, end: Callable[[System], None]
) -> None:
    system.start_worker(
        QUEUE_EXECUTORS="low:1", MAX_CRASHES="1", MAX_RETRIES="0", KILL_GRACE="0.2", WORKER_EXECUTORS="2"
    )
    for _ in range(2):
        end(system)
    for each in [*system.submit_many([("noop", "null")] * 3, "low"), system.submit("noop", queue="low")]:
        assert system.ended(each, seconds=30).summary.state is TaskState.COMPLETED
    wait_until(lambda: in_use(system) == [0], "the heartbeat says that nothing is in use", 30)


def test_a_worker_warns_when_long_tasks_may_use_all_of_its_executors(system: System) -> None:
    system.start_worker(WORKER_EXECUTORS="2", QUEUE_EXECUTORS="low:2")
    assert "QUEUE_EXECUTORS lets low use all 2 executors" in system.logs()
    system.start_worker(WORKER_EXECUTORS="3", QUEUE_EXECUTORS="low:2")
    assert system.logs().count("QUEUE_EXECUTORS lets") == 1


# --- the claim ---


def test_a_claim_takes_no_more_of_a_queue_than_it_may_and_fills_up_from_the_others(low: Store) -> None:
    slow, quick = low.submit(5, "low"), low.submit(5)
    assert claim(low, 6, "3/1") == [*quick, slow[0]]
    assert claim(low, 6, "3/0", "t2") == []
    assert claim(low, 6, "0/2", "t3") == slow[1:3], "the quota is filled up to the bound"
    assert claim(low, 6, "6", "t4") == slow[3:], "no bound"


def test_what_is_left_in_a_full_queue_is_announced_to_the_next_worker_and_not_asked_for_again(low: Store) -> None:
    low.submit(2, "low")
    low.redis.delete(keys.wakeup("low"))
    order = claiming("w", "t", LEASE, 4, 1 << 20, "normal", 4, "low", 0, next_token="next", most={"low": 1})
    reply = low.scripts.call("claim", *order)
    assert (len(reply[3]), reply[2]) == (1, 0)
    assert low.redis.llen(keys.wakeup("low")) == 1
    parked: dict[str, Any] = json.loads(low.redis.get(keys.parked_claim("w")) or "{}")
    assert parked["takes"] == {"normal": True, "low": False}, "its order for more leaves the full queue out"


def test_a_parked_claim_is_answered_with_as_many_as_its_queue_has_executors_for(low: Store) -> None:
    assert claim(low, 4, "0/1") == []
    parked: dict[str, Any] = json.loads(low.redis.get(keys.parked_claim("w")) or "{}")
    assert parked["takes"] == {"normal": True, "low": True}
    claim(low, 4, "0/0", "t+")
    parked = json.loads(low.redis.get(keys.parked_claim("w")) or "{}")
    assert parked["takes"] == {"normal": True, "low": False}


def test_what_waits_in_lines_is_bounded_too_and_takes_no_slot_of_its_limit(low: Store) -> None:
    limits = Limits(low.scripts)
    limits.put("key:partner", Limit(concurrency=0))
    waiting = low.submit(4, "low", limit_key="partner")
    assert claim(low, 4, "0/4") == [], "they go into the line of the limit"
    limits.put("key:partner", Limit(concurrency=3))
    assert claim(low, 4, "0/0", "t2") == []
    assert claim(low, 4, "0/1", "t3") == waiting[:1]
    assert claim(low, 4, "0/4", "t4") == waiting[1:3]
    assert low.redis.scard(keys.slots("key:partner")) == 3


def test_a_paused_queue_stays_paused_and_tenants_take_turns(low: Store) -> None:
    many = low.submit(3, "low", fair_key="many")
    [one] = low.submit(1, "low", fair_key="one")
    low.queues.pause("low", "lunch")
    assert claim(low, 4, "0/2") == []
    low.queues.resume("low")
    low.clock.advance(timedelta(seconds=1))
    assert claim(low, 4, "0/2", "t2") == [many[0], one]
