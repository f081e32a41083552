"""Hooks of executors and workers that start and stop: no task begins without them, and none is lost by their errors."""

from __future__ import annotations

import os
import signal
import subprocess
from functools import partial
from pathlib import Path

import pytest

from firmq.shared.domain.task import TaskDetail, TaskState
from tests.support.harness import System, wait_until
from tests.support.worker_hooks import announce


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    (path := tmp_path / "notes").touch()
    return path


def start(system: System, notes: Path, **environment: str) -> subprocess.Popen[bytes]:
    about = {"TASK_MODULES": "tests.support.hooks", "TEST_HOOKS_FILE": str(notes), **environment}
    return system.start("worker", **about)


def ended(system: System, kind: str) -> TaskDetail:
    return system.ended(system.submit(kind, "{}"))


def noted(notes: Path, *words: str) -> list[str]:
    """The lines that begin with one of these words."""
    return [line for line in notes.read_text().splitlines() if line.startswith(words)]


def _closed(notes: Path, number: int) -> bool:
    return len(noted(notes, "close first")) == number


def test_an_executor_opens_before_its_first_task_and_closes_after_its_last(system: System, notes: Path) -> None:
    worker = start(system, notes, CONCURRENT_EXECUTORS="0", EXECUTOR_MAX_TASKS="1")
    for number in (1, 2):
        assert ended(system, "plain").summary.state is TaskState.COMPLETED
        wait_until(partial(_closed, notes, number), "its executor has ended")
    worker.terminate()
    assert worker.wait(30) == 0
    ran = [line.removeprefix("run ") for line in noted(notes, "run")]
    assert len(set(ran)) == 2
    for pid in ran:
        own = [line for line in noted(notes, "") if line.endswith(f" {pid}")]
        assert own == [f"open serial {pid}", f"run {pid}", f"close first serial {pid}"]
    assert "executor_stopping hook tests.support.hooks.raises_at_the_end failed: ValueError: no matter" in system.logs()


def test_a_killed_executor_is_replaced_by_one_with_its_hooks(system: System, notes: Path) -> None:
    worker = start(system, notes)
    assert ended(system, "coroutine").summary.state is TaskState.COMPLETED
    [old] = system.executors(worker, "concurrent")
    os.kill(old, signal.SIGKILL)
    assert ended(system, "coroutine").summary.state is TaskState.COMPLETED
    assert len(noted(notes, "open concurrent")) == 2


@pytest.mark.parametrize("wrong", ["raise", "hang", "crash"])
def test_an_executor_that_cannot_start_its_hooks_takes_no_task(system: System, notes: Path, wrong: str) -> None:
    task = system.submit("plain", "{}")
    worker = start(system, notes, TEST_HOOKS_WRONG=wrong, HOOK_TIMEOUT="0.5")
    assert worker.wait(60) == 2
    assert len(noted(notes, "open serial")) >= 3
    assert noted(notes, "run") == []
    assert system.records.get(task).attempts == ()
    if wrong != "crash":
        assert "executor_started hook tests.support.hooks.open_pool failed" in system.logs()
    start(system, notes)
    assert system.ended(task).summary.crashes == 0


def test_a_worker_runs_its_own_hooks_in_its_main_process(system: System, notes: Path) -> None:
    worker = start(system, notes, WORKER_HOOK_MODULES="tests.support.worker_hooks")
    assert ended(system, "plain").summary.state is TaskState.COMPLETED
    [info] = wait_until(system.workers.all, "it has announced itself")
    worker.terminate()
    assert worker.wait(30) == 0
    order = noted(notes, "started", "run", "stopped")
    assert [order[0], order[-1]] == [f"started {info.name} 5", f"stopped {info.name}"]
    assert order[1].startswith("run ")


@pytest.mark.parametrize(
    ("module", "says"),
    [
        ("tests.support.worker_hooks", "worker_started hook tests.support.worker_hooks.announce failed"),
        ("no.such.module", "WORKER_HOOK_MODULES: module no.such.module cannot be imported"),
    ],
)
def test_a_worker_does_not_start_without_its_hooks(system: System, notes: Path, module: str, says: str) -> None:
    worker = start(system, notes, WORKER_HOOK_MODULES=module, TEST_HOOKS_WRONG="raise")
    assert worker.wait(30) == 2
    assert says in system.logs()
    assert system.workers.all() == []


def test_a_hook_of_a_worker_in_a_module_of_handlers_is_named(system: System, notes: Path) -> None:
    start(system, notes, TASK_MODULES="tests.support.hooks,tests.support.worker_hooks")
    says = f"worker_started hook {announce.__module__}.announce does not run: name its module in WORKER_HOOK_MODULES"
    wait_until(lambda: says in system.logs(), "the executor names it", 30)
