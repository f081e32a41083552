"""Many handlers that wait run in one process, and what holds for one task at a time holds for each of them."""

from __future__ import annotations

import json
import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from redis import Redis

from firmq.shared.domain.task import NewTask, TaskDetail, TaskState, new_task_id
from tests.support.figures import judge, judge_since
from tests.support.harness import System, running_system, wait_until

MODULES = "tests.support.handlers,tests.support.handlers_concurrent"


@pytest.fixture
def system(redis_client: Redis, redis_url: str, tmp_path: Path) -> Iterator[System]:
    with running_system(redis_client, redis_url, tmp_path, TASK_MODULES=MODULES, EXECUTOR_SLOTS="100") as system:
        yield system


def many(system: System, kind: str, count: int, **data: Any) -> list[str]:
    return system.submit_many([(kind, json.dumps(data))] * count)


def is_up(system: System, worker: Any, count: int = 1) -> list[int]:
    """Process ids of the concurrent executors, once a task ran in one."""
    system.ended(system.submit("nap", '{"seconds": 0}'))
    found: list[int] = wait_until(lambda: concurrent(system, worker, count), "all concurrent executors are up")
    return found


def concurrent(system: System, worker: Any, count: int = 1) -> list[int]:
    found = system.executors(worker, "concurrent")
    return found if len(found) == count else []


def running(system: System, ids: list[str]) -> Callable[[], bool]:
    return lambda: all(system.records.state(each) is TaskState.RUNNING for each in ids)


def attempts(system: System, ids: list[str]) -> Counter[int]:
    return Counter(system.records.get(each).summary.attempt for each in ids)


def details(system: System, ids: list[str]) -> list[TaskDetail]:
    return [system.ended(each) for each in ids]


def seconds_of(task: TaskDetail) -> float:
    """How long its only attempt took."""
    [attempt] = task.attempts
    assert attempt.started_at
    assert attempt.ended_at
    return (attempt.ended_at - attempt.started_at).total_seconds()


# --- many at a time ---


@pytest.mark.parametrize("kind", ["nap", "thread-nap"])
def test_a_hundred_tasks_that_wait_for_a_second_take_little_more_than_that(system: System, kind: str) -> None:
    is_up(system, system.start_worker())
    begun = time.monotonic()
    ids = many(system, kind, 100, seconds=1)
    system.all_ended()
    assert time.monotonic() - begun < 50, "one after the other they take a hundred seconds"
    judge_since(f"100 tasks of type {kind} that wait for a second", begun, 5)
    assert attempts(system, ids) == {1: 100}


def test_tasks_that_compute_run_beside_those_that_wait(system: System) -> None:
    is_up(system, system.start_worker(EXECUTOR_SLOTS="2"))
    waiting = many(system, "nap", 50, seconds=30)
    [plain] = system.submit_many([("noop", "null")])
    assert system.ended(plain).summary.state is TaskState.COMPLETED
    assert sum(system.records.state(each) is TaskState.RUNNING for each in waiting) <= 2


def test_each_has_its_own_context_lines_and_progress(system: System) -> None:
    system.start_worker()
    ids = {name: system.submit("marked", json.dumps({"name": name, "seconds": 0.2})) for name in "abcdefgh"}
    for name, task_id in ids.items():
        task = system.ended(task_id)
        assert task.result == name
        lines = [line.split(" ", 2)[2] for line in task.attempts[0].logs]
        assert lines == [f"begin {name}", f"child {name}", f"child {name}", f"thread {name}"]
        assert task.summary.progress
        assert task.summary.progress.message == name


def test_a_handler_that_awaits_its_progress_leaves_turns_to_others(system: System, tmp_path: Path) -> None:
    is_up(system, system.start_worker())
    computing = system.submit("counts", json.dumps({"until": str(tmp_path / "until")}))
    wait_until(lambda: system.records.get(computing).summary.progress, "its progress is shown")
    system.ended(system.submit("nap", '{"seconds": 0.1}'))
    assert system.records.state(computing) is TaskState.RUNNING
    (tmp_path / "until").touch()
    task = system.ended(computing)
    assert task.summary.state is TaskState.COMPLETED
    assert task.summary.progress
    assert task.summary.progress.message.startswith("step ")


def test_a_task_that_a_handler_leaves_running_ends_with_it(system: System) -> None:
    worker = system.start_worker()
    before = is_up(system, worker)
    for each in details(system, many(system, "leaver", 5, seconds=3600)):
        assert each.result == "left"
    assert is_up(system, worker) == before


# --- one is stopped ---


def test_one_over_its_time_limit_is_cancelled_and_no_other_is_disturbed(system: System) -> None:
    is_up(system, system.start_worker())
    others = many(system, "nap", 50, seconds=4)
    task = system.ended(system.submit("limited", '{"seconds": 3600}'))
    assert task.summary.error
    assert task.summary.error.type == "TimeLimitExceeded"
    assert seconds_of(task) < 20
    judge("an attempt with a limit of a second", seconds_of(task), 2)
    system.all_ended()
    assert attempts(system, others) == {1: 50}


@pytest.mark.parametrize(("kind", "calm"), [("swallows", True), ("wedged", True), ("thread-stuck", False)])
def test_one_that_ignores_its_limit_ends_and_the_others_lose_no_attempt_that_counts(
    system: System, tmp_path: Path, kind: str, calm: bool
) -> None:
    is_up(system, system.start_worker())
    go = tmp_path / "go"
    others = many(system, "open-later", 50, go=str(go)) if calm else many(system, "waits-at-first", 50)
    wait_until(running(system, others), "the others run")
    task = system.ended(system.submit(kind, "{}"))
    go.touch()
    assert task.summary.error
    assert task.summary.error.type == "TimeLimitExceeded"
    assert system.all_ended()[TaskState.COMPLETED] == 51
    assert set(attempts(system, others)) == ({1} if calm else {2})
    assert all(each.summary.failures == 0 for each in details(system, others))


def test_one_that_ignores_its_limit_cleans_up_as_the_task_that_it_is(system: System, tmp_path: Path) -> None:
    system.start_worker()
    cleaned = tmp_path / "cleaned"
    task = system.ended(system.submit("swallows-tidily", json.dumps({"path": str(cleaned)})))
    assert cleaned.read_text() == task.summary.id


def test_one_that_is_cancelled_stops_and_no_other(system: System) -> None:
    is_up(system, system.start_worker())
    others, victim = many(system, "nap", 20, seconds=3), system.submit("nap", '{"seconds": 3600}')
    wait_until(running(system, [victim]), "it runs")
    system.queues.cancel(victim, "a test")
    assert system.ended(victim).summary.state is TaskState.CANCELLED
    system.all_ended()
    assert attempts(system, others) == {1: 20}


def test_a_thread_over_its_time_limit_is_stopped(system: System) -> None:
    is_up(system, system.start_worker())
    others = many(system, "thread-nap", 20, seconds=3)
    task = system.ended(system.submit("thread-limited", '{"seconds": 3600}'))
    assert task.summary.error
    assert task.summary.error.type == "TimeLimitExceeded"
    system.all_ended()
    assert attempts(system, others) == {1: 20}


# --- one blocks the loop ---


def test_one_that_blocks_the_loop_is_named_and_delays_the_others_by_at_most_two_seconds(system: System) -> None:
    is_up(system, system.start_worker())
    others = many(system, "nap", 20, seconds=1)
    blocker = system.submit("blocker", '{"seconds": 15}')
    task = system.ended(blocker)
    slowest = max(map(seconds_of, details(system, others)))
    assert slowest < 15, "they do not wait for it"
    judge("the slowest of the others", slowest, 3)
    assert attempts(system, others) == {1: 20}
    assert (task.result, task.summary.failures) == ("slept", 0)
    logs = system.logs()
    assert f"task {blocker} (blocker) blocked the event loop" in logs
    assert "in blocker" in logs
    assert "tasks of type blocker run one at a time" in logs


def test_one_that_blocks_the_loop_takes_nothing_of_the_others_time_limits(system: System) -> None:
    """Neither of those that have begun, nor of those whose first step comes after it."""
    is_up(system, system.start_worker())
    begun, beginning = [[_with_a_second(kind) for kind in ("nap", "naps", "thread-nap") * 5] for _ in range(2)]
    system.queues.submit(
        [*begun, NewTask(id=new_task_id(), type="blocker", data='{"seconds": 15}', queue="normal"), *beginning]
    )
    for each in details(system, [task.id for task in (*begun, *beginning)]):
        assert (each.summary.state, each.summary.attempt) == (TaskState.COMPLETED, 1), each.summary.error


def _with_a_second(kind: str) -> NewTask:
    """Needs half of its time limit; the blocker blocks for longer than all of it."""
    return NewTask(id=new_task_id(), type=kind, data='{"seconds": 0.5}', queue="normal", timeout=timedelta(seconds=1))


# --- the executor dies ---


def test_after_the_death_of_an_executor_each_of_its_tasks_runs_again(system: System) -> None:
    [pid] = is_up(system, system.start_worker())
    ids = many(system, "waits-at-first", 100)
    wait_until(running(system, ids), "all run")
    os.kill(pid, signal.SIGKILL)
    killed = time.monotonic()
    wait_until(lambda: all(system.records.get(each).summary.attempt == 2 for each in ids), "each runs again")
    judge_since("until 100 tasks of a killed executor run again", killed, 15)
    assert system.all_ended()[TaskState.COMPLETED] == 101
    assert all(each.summary.failures == 0 and each.summary.crashes == 0 for each in details(system, ids))


def test_one_that_kills_its_executor_is_found_and_costs_no_other_its_life(system: System) -> None:
    system.start_housekeeper()
    is_up(system, system.start_worker())
    others = many(system, "nap", 63, seconds=1)
    guilty = system.submit("dies", '{"after": 0.2}')
    task = system.ended(guilty, 100)
    assert task.summary.state is TaskState.FAILED
    assert task.summary.error
    assert task.summary.error.type == "PoisonTask"
    counts = system.all_ended()
    assert (counts[TaskState.COMPLETED], counts[TaskState.FAILED]) == (64, 1)
    assert all(each.summary.crashes == 0 for each in details(system, others))
    assert task.summary.attempt <= 6 + 1 + 3, "halves of 64, and three crashes of its own"


# --- the worker stops ---


def test_a_drain_lets_them_end_and_gives_the_others_back_after_they_have_cleaned_up(
    system: System, tmp_path: Path
) -> None:
    worker = system.start_worker(DRAIN_GRACE="8")
    is_up(system, worker)
    short, begun, cleaned = many(system, "nap", 10, seconds=1), tmp_path / "begun", tmp_path / "cleaned"
    begun.touch()
    data = json.dumps({"seconds": 3600, "begun": str(begun), "cleaned": str(cleaned)})
    long = [system.submit("tidy", data) for _ in range(10)]
    wait_until(lambda: sorted(begun.read_text().split()) == sorted(long), "all run")
    worker.terminate()
    assert worker.wait(60) == 0
    assert all(each.summary.state is TaskState.COMPLETED for each in details(system, short))
    assert sorted(cleaned.read_text().split()) == sorted(long)
    assert {system.records.state(each) for each in long} == {TaskState.PENDING}


def test_a_handler_that_lowers_the_limits_of_its_process_fails_no_neighbour(system: System, tmp_path: Path) -> None:
    worker = system.start_worker(LEASE_TIME="60")
    is_up(system, worker)
    go = tmp_path / "go"
    beside = many(system, "open-later", 10, go=str(go))
    wait_until(running(system, beside), "all run")
    culprit = system.submit("limit-files", "{}")
    assert system.ended(culprit).summary.state is TaskState.COMPLETED
    go.touch()
    assert Counter(each.summary.state for each in details(system, beside)) == {TaskState.COMPLETED: 10}


@pytest.mark.parametrize("kind", ["forks", "thread-forks"])
def test_a_process_that_a_handler_forks_ends_when_it_leaves_the_handler(system: System, kind: str) -> None:
    system.start_worker()
    ids = {how: system.submit(kind, json.dumps({"how": how})) for how in ("returns", "raises", "exits")}
    assert {how: system.ended(each).result for how, each in ids.items()} == {"returns": 0, "raises": 1, "exits": 7}


def test_the_next_task_of_a_thread_has_the_signals_and_processors_of_the_executor(system: System) -> None:
    system.start_worker(EXECUTOR_SLOTS="1")
    expected = system.ended(system.submit("thread-state", "{}")).result
    for _ in range(3):
        assert system.ended(system.submit("thread-state", "{}")).result == expected
