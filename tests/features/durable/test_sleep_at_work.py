"""Tasks that sleep, at real workers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from firmq.shared.domain.task import TaskState
from tests.features.durable.handlers import calls
from tests.support.harness import System, wait_until

MODULES = {"TASK_MODULES": "tests.features.durable.handlers,tests.support.handlers"}
KINDS = pytest.mark.parametrize("kind", ["nap-between", "nap-between-threads", "nap-between-async"])


def nap(system: System, folder: Path, kind: str, seconds: float) -> str:
    folder.mkdir(exist_ok=True)
    return system.submit(kind, json.dumps({"folder": str(folder), "seconds": seconds}))


def asleep(system: System, task_id: str) -> None:
    wait_until(lambda: system.records.state(task_id) is TaskState.SCHEDULED, f"task {task_id} sleeps")


def result(attempt: int = 2) -> list[Any]:
    return [{"name": "first", "calls": 1}, {"name": "second", "calls": 1}, attempt, 0]


@KINDS
def test_a_sleeping_task_occupies_no_executor(system: System, tmp_path: Path, kind: str) -> None:
    system.start_worker(**MODULES, EXECUTOR_SLOTS="1")
    sleeping = [nap(system, tmp_path / str(number), kind, 3600) for number in range(3)]
    for each in sleeping:
        asleep(system, each)
    assert system.ended(system.submit("noop")).summary.state is TaskState.COMPLETED
    for number, each in enumerate(sleeping):
        found = system.records.get(each)
        assert (found.summary.awaits, found.summary.failures) == ("pause", 0)
        assert [attempt.outcome for attempt in found.attempts] == ["interrupted"]
        assert calls(tmp_path / str(number), "finally") == 1
        assert calls(tmp_path / str(number), "swallowed") == 0
        system.queues.run_now(each)
        assert system.ended(each).result == result()


@KINDS
def test_a_sleep_ends_at_its_time_whatever_happened_to_the_worker(system: System, tmp_path: Path, kind: str) -> None:
    worker = system.start_worker(**MODULES)
    task = nap(system, tmp_path, kind, 2)
    asleep(system, task)
    worker.kill()
    worker.wait()
    system.start_housekeeper()  # without one it sleeps on, however late it was seen asleep
    system.start_worker(**MODULES)
    found = system.ended(task)
    assert found.result == result()
    first, second = found.attempts
    assert first.started_at is not None
    assert second.started_at is not None
    assert (second.started_at - first.started_at).total_seconds() >= 2
    assert [(each.name, each.kind) for each in found.steps] == [
        ("first", "result"),
        ("pause", "slept"),
        ("second", "result"),
    ]


def test_sleeps_at_a_time_end_one_after_the_other(system: System) -> None:
    system.start_worker(**MODULES)
    task = system.submit("nap-in-group", "{}")
    for _ in range(2):
        asleep(system, task)
        system.queues.run_now(task)
        wait_until(lambda: system.records.state(task) is not TaskState.PENDING, "it runs again")
    assert system.ended(task).result == "awake"


def test_a_failed_attempt_after_a_sleep_does_not_repeat_the_sleep(system: System, tmp_path: Path) -> None:
    system.start_worker(**MODULES)
    system.start_housekeeper()
    data = json.dumps({"folder": str(tmp_path)})
    found = system.ended(system.submit("fails-then-naps", data, retry={"max_retries": 2}))
    assert found.summary.state is TaskState.COMPLETED
    assert found.result == [4, 2]
    assert [each.outcome for each in found.attempts] == ["failed", "interrupted", "failed", "completed"]
