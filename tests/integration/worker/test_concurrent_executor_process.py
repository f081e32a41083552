"""What a concurrent executor tells the worker at the other end of its pipes."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from firmq.shared.domain import task_data
from firmq.worker.engine.claimed_task import ClaimedTask
from firmq.worker.executors import ipc, process
from firmq.worker.executors.ipc import EndedAttempt
from firmq.worker.executors.process import ExecutorProcess
from tests.support.harness import wait_until
from tests.unit.worker.fakes import claimed

SLOTS = 100
UNREAD = 1.6
"""Seconds without a turn of the loop in which a blocked loop is reported."""


class Executor:
    """A concurrent executor, ready, and the events that it has sent."""

    def __init__(self) -> None:
        self.process = ExecutorProcess("a worker", ipc.CONCURRENT, SLOTS)
        self.events: list[tuple[Any, ...]] = []
        self.count = 0
        self.sends(ipc.HELLO)

    def makes(self, kind: str, limit: float = 60.0, size: int = 0, **data: Any) -> ClaimedTask:
        self.count += 1
        stored = task_data.encode(kind, json.dumps(data).ljust(size)).encode()
        return claimed(str(self.count), type=kind.encode(), data=stored, number=self.count, limit=limit)

    def runs(self, kind: str, limit: float = 60.0, **data: Any) -> int:
        """Begins a task, and returns its number."""
        self.process.assign([task := self.makes(kind, limit, **data)])
        wait_until(lambda: not self.process.waiting(), "it has begun")
        return task.number

    def begins(self, task: ClaimedTask) -> None:
        """Has the executor read the start token of a task that is still on its way."""
        os.write(self.process._start_tokens, ipc.start_tokens([task.number]))
        wait_until(lambda: not self.process.waiting(), "its start token is read")

    def receives(self, *frames: tuple[Any, ...]) -> None:
        """Writes frames so that one read takes them all."""
        os.write(self.process._tasks, b"".join(map(ipc.frame, frames)))

    def sends(self, name: str, count: int = 1, within: float = 60) -> list[list[Any]]:
        """Returns the fields of its events of this name, once there are so many."""
        wait_until(lambda: len(self.sent(name)) >= count, f"{count} events: {name}", within)
        return self.sent(name)

    def sent(self, name: str) -> list[list[Any]]:
        self.events += list(self.process.read())
        return [fields for each, *fields in self.events if each == name]

    def outcomes(self, count: int = 1) -> list[EndedAttempt]:
        return [EndedAttempt(*fields) for fields in self.sends(ipc.OUTCOME, count)]

    def settles(self) -> None:
        """Waits for what it sends beside its answer to a command."""
        self.process.command(ipc.PING)
        self.sends(ipc.PONG)
        time.sleep(0.2)

    def ends(self) -> int:
        """Returns its exit status, once it has ended by itself."""
        wait_until(self.process.is_dead, "the executor has ended", 60)
        return int(self.process.process.returncode)


@pytest.fixture
def start(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Executor]]:
    """Starts an executor in which an attempt is asked once to stop, unless KILL_GRACE is given."""
    started: list[Executor] = []

    def start(**settings: str) -> Executor:
        about = {"TASK_MODULES": "tests.support.handlers_concurrent", "KILL_GRACE": "60", **settings}
        for name, value in about.items():
            monkeypatch.setenv(name, value)
        started.append(Executor())
        return started[-1]

    yield start
    for executor in started:
        executor.process.kill()
        executor.process.reap()


@pytest.fixture
def executor(start: Callable[..., Executor]) -> Executor:
    return start()


# --- what the worker sends ---


def test_tasks_too_large_for_one_frame_arrive_complete_and_in_order(
    executor: Executor, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[int] = []
    frame = ipc.frame

    def measured(value: tuple[Any, ...]) -> bytes:
        data = frame(value)
        sizes.append(len(data))
        return data

    monkeypatch.setattr(process, "_FRAME_BYTES", 2000)
    monkeypatch.setattr(ipc, "frame", measured)
    tasks = [executor.makes("nap", size=500, seconds=0) for _ in range(SLOTS)]
    executor.process.assign(tasks)
    outcomes = executor.outcomes(SLOTS)
    assert [(each.number, each.outcome) for each in outcomes] == [(task.number, "completed") for task in tasks]
    assert max(sizes) < 4000


@pytest.mark.parametrize("command", [ipc.CANCEL, ipc.ABANDON])
def test_a_command_that_comes_with_its_task_stops_it(executor: Executor, command: str) -> None:
    executor.begins(task := executor.makes("nap", seconds=3600))
    executor.receives((0, [tuple(task.assignment())]), (command, task.number))
    if command == ipc.CANCEL:
        assert [each.state for each in executor.outcomes()] == ["cancelled"]
    else:
        assert executor.sends(ipc.STOPPED) == [[task.number]]


@pytest.mark.parametrize("kind", ["nap", "thread-nap"])
def test_a_task_whose_worker_stops_before_its_first_step_is_returned(executor: Executor, kind: str) -> None:
    executor.begins(task := executor.makes(kind, seconds=1))
    executor.receives((0, [tuple(task.assignment())]), (ipc.STOP, 0))
    assert executor.sends(ipc.STOPPED) == [[task.number]]


def test_any_event_shows_that_it_is_alive(executor: Executor) -> None:
    executor.process.pinged_at = time.monotonic()
    executor.runs("nap", seconds=0)
    executor.outcomes()
    assert executor.process.pinged_at is None


# --- one is stopped ---


def test_one_that_turns_its_cancellation_into_another_error_is_returned_when_the_worker_stops(
    executor: Executor,
) -> None:
    number = executor.runs("turns-cancel-into-error")
    executor.settles()
    executor.process.command(ipc.STOP)
    assert executor.sends(ipc.STOPPED) == [[number]]
    assert executor.sent(ipc.OUTCOME) == []


def test_an_executor_in_which_a_thread_was_interrupted_runs_no_other_task(executor: Executor) -> None:
    executor.runs("thread-limited", limit=0.2, seconds=3600)
    assert [each.outcome for each in executor.outcomes()] == ["timed_out"]
    [(handler, _, _, ends)] = executor.sends(ipc.LEFT)
    assert (handler, ends) == ("thread-limited", True)


# --- a blocked loop ---


def test_many_short_steps_in_one_turn_of_the_loop_are_no_blockage(executor: Executor) -> None:
    executor.process.assign([executor.makes("blocker", seconds=0.03) for _ in range(SLOTS)])
    assert {each.outcome for each in executor.outcomes(SLOTS)} == {"completed"}
    assert executor.sent(ipc.BLOCKED) == []


def test_one_that_blocks_the_loop_in_a_group_of_tasks_is_stopped_and_runs_again(executor: Executor) -> None:
    number = executor.runs("group-blocker", seconds=5)
    assert executor.sends(ipc.FREED) == [[number]]
    assert executor.sent(ipc.OUTCOME) == []


def test_one_whose_events_the_worker_does_not_read_blocks_nothing(executor: Executor) -> None:
    executor.runs("chatty", events=4000)
    time.sleep(UNREAD)
    assert [each.outcome for each in executor.outcomes()] == ["completed"]
    executor.settles()
    assert executor.sent(ipc.BLOCKED) == []


def test_one_that_waits_for_a_thread_whose_events_the_worker_does_not_read_blocks_nothing(executor: Executor) -> None:
    executor.runs("thread-chatty", events=4000)
    time.sleep(0.3)
    executor.runs("nap", seconds=0)
    time.sleep(UNREAD)
    assert [each.outcome for each in executor.outcomes(2)] == ["completed", "completed"]
    executor.settles()
    assert executor.sent(ipc.BLOCKED) == []


# --- outcomes ---


@pytest.mark.parametrize("wedged", [False, True])
def test_an_executor_that_cannot_send_an_outcome_ends(start: Callable[..., Executor], wedged: bool) -> None:
    executor = start(KILL_GRACE="0.2")
    executor.runs("spoils-outcomes", limit=0.2, wedged=wedged)
    assert executor.ends() == 1


def test_an_outcome_that_takes_long_to_send_is_not_interrupted(executor: Executor) -> None:
    number = executor.runs("slows-outcomes", seconds=2.2)
    assert [(each.number, each.outcome) for each in executor.outcomes()] == [(number, "completed")]
    assert len(executor.sent(ipc.BLOCKED)) == 1
