"""Tasks that wait for signals, at real workers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from taskqueue.shared.domain.task import TaskState
from tests.support.handlers_durable import calls
from tests.support.harness import System, wait_until

MODULES = {"TASK_MODULES": "tests.support.handlers_durable,tests.support.handlers"}
KINDS = pytest.mark.parametrize("kind", ["approve", "approve-threads", "approve-async"])


def asked(system: System, folder: Path, kind: str, within: float | None = None) -> str:
    task = system.submit(kind, json.dumps({"folder": str(folder), "within": within}))
    wait_until(lambda: system.records.state(task) is TaskState.SCHEDULED, f"task {task} waits")
    return task


@KINDS
def test_a_task_continues_with_the_data_of_its_signal(system: System, tmp_path: Path, kind: str) -> None:
    worker = system.start_worker(**MODULES, EXECUTOR_SLOTS="1")
    task = asked(system, tmp_path, kind)
    assert system.ended(system.submit("noop")).summary.state is TaskState.COMPLETED
    worker.kill()
    worker.wait()
    system.queues.signal(task, "approval", {"by": "Ann"}, "Ann")
    system.start_worker(**MODULES)
    found = system.ended(task)
    assert found.result == [{"by": "Ann"}, 2, 0]
    assert (calls(tmp_path, "ask"), calls(tmp_path, "tell")) == (1, 1)
    assert [each.name for each in found.steps] == ["ask", "signal:approval", "tell"]


@KINDS
def test_a_signal_that_came_before_is_returned_at_once(system: System, tmp_path: Path, kind: str) -> None:
    task = system.submit(kind, json.dumps({"folder": str(tmp_path)}))
    system.queues.signal(task, "approval", 7, "Ann")
    system.start_worker(**MODULES)
    assert system.ended(task).result == [7, 1, 0]


@KINDS
def test_a_wait_times_out(system: System, tmp_path: Path, kind: str) -> None:
    system.start_worker(**MODULES)
    system.start_housekeeper()
    task = asked(system, tmp_path, kind, 0.5)
    assert system.ended(task).result == ["too late", 2, 0]


def test_a_wait_that_was_run_now_continues_to_wait(system: System, tmp_path: Path) -> None:
    system.start_worker(**MODULES)
    task = asked(system, tmp_path, "approve")
    system.queues.run_now(task)
    wait_until(lambda: len(system.records.get(task).attempts) == 2, "it ran again")
    wait_until(lambda: system.records.state(task) is TaskState.SCHEDULED, "it waits again")
    system.queues.signal(task, "approval", 7, "Ann")
    assert system.ended(task).result == [7, 3, 0]
