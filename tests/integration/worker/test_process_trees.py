"""What handlers start ends with them: when their worker is killed or hangs, and when their executor dies."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections import defaultdict
from pathlib import Path

import pytest

from firmq.shared.domain.task import TaskState
from firmq.worker.executors.process_tree import children
from tests.support.handlers import BROOD
from tests.support.harness import System, alive, command_line, wait_until

EVERYONE = {"self", *BROOD}


def lived(file: Path) -> dict[int, dict[str, dict[int, float]]]:
    """By attempt and kind: the processes that wrote, and when they did last."""
    found: dict[int, dict[str, dict[int, float]]] = defaultdict(lambda: defaultdict(dict))
    for line in file.read_text().splitlines() if file.exists() else ():
        attempt, kind, pid, moment = line.split()
        found[int(attempt)][kind][int(pid)] = float(moment)
    return found


def begun(system: System, file: Path, **options: str) -> tuple[subprocess.Popen[bytes], str, list[int]]:
    """A worker whose only executor runs a handler with processes of every kind below it."""
    worker = system.start_worker(WORKER_EXECUTORS="1", **options)
    task_id = system.submit("brood", json.dumps({"file": str(file)}), retry={"max_retries": 0})
    wait_until(lambda: set(lived(file)[1]) == EVERYONE, "processes of every kind run")
    return worker, task_id, [pid for pids in lived(file)[1].values() for pid in pids]


def watchdog(worker: subprocess.Popen[bytes]) -> int:
    return next((pid for pid in children(worker.pid) if "process_tree" in command_line(pid)), 0)


def none_lives(pids: list[int]) -> bool:
    return not any(map(alive, pids))


@pytest.mark.parametrize("how", [signal.SIGSTOP, signal.SIGKILL])
def test_processes_of_the_first_run_end_before_the_second(system: System, tmp_path: Path, how: signal.Signals) -> None:
    file = tmp_path / "lived"
    worker, task_id, pids = begun(system, file)
    system.start_worker(WORKER_EXECUTORS="1")
    system.start_housekeeper()
    worker.send_signal(how)
    assert system.ended(task_id).summary.state is TaskState.COMPLETED
    [second] = lived(file)[2]["self"].values()
    last = {kind: max(moments.values()) for kind, moments in lived(file)[1].items()}
    assert {kind for kind, moment in last.items() if moment > second - 0.05} == set()
    assert none_lives(pids)
    assert system.workers.all(), "the other worker is untouched"


def test_a_worker_that_hung_past_its_leases_works_on_without_charging_its_task(system: System, tmp_path: Path) -> None:
    file = tmp_path / "lived"
    worker, task_id, pids = begun(system, file, MAX_CRASHES="1")
    worker.send_signal(signal.SIGSTOP)
    wait_until(lambda: none_lives(pids), "everything below it has ended")
    worker.send_signal(signal.SIGCONT)
    task = system.ended(task_id)
    assert task.summary.state is TaskState.COMPLETED, "no housekeeper: the worker itself gave it back, and ran it again"
    assert task.attempts[0].error is not None
    assert task.attempts[0].error.type == "Interrupted"


def test_processes_of_a_dead_executor_are_ended(system: System, tmp_path: Path) -> None:
    worker, _, pids = begun(system, tmp_path / "lived", MAX_CRASHES="1")
    [executor] = system.executors(worker)
    os.kill(executor, signal.SIGKILL)
    wait_until(lambda: none_lives(pids), "everything below it has ended")
    wait_until(lambda: "killed processes that executor" in system.logs(), "that is logged")


def test_what_an_executor_left_that_died_while_its_worker_hung_is_ended_too(system: System, tmp_path: Path) -> None:
    worker, _, pids = begun(system, tmp_path / "lived")
    [executor] = system.executors(worker)
    worker.send_signal(signal.SIGSTOP)
    os.kill(executor, signal.SIGKILL)
    wait_until(lambda: none_lives(pids), "everything that it had started has ended")


def test_a_hangup_of_a_forked_process_ends_that_one_alone(system: System) -> None:
    system.start_worker(MAX_CRASHES="1")
    task = system.ended(system.submit("hang-up-a-child", "{}"))
    assert (task.summary.state, task.result) == (TaskState.COMPLETED, int(signal.SIGHUP))


def test_a_killed_watchdog_is_replaced_and_does_its_work(system: System, tmp_path: Path) -> None:
    worker, _, pids = begun(system, tmp_path / "lived")
    first = watchdog(worker)
    os.kill(first, signal.SIGKILL)
    wait_until(lambda: "restarting it" in system.logs(), "the worker noticed")
    wait_until(lambda: watchdog(worker) not in (0, first), "another watchdog runs")
    assert not none_lives(pids)
    worker.kill()
    wait_until(lambda: none_lives(pids), "everything below it has ended")


def test_executors_end_with_all_below_them_when_worker_and_watchdog_are_killed(system: System, tmp_path: Path) -> None:
    worker, _, pids = begun(system, tmp_path / "lived")
    os.kill(worker.pid, signal.SIGSTOP)  # so that it starts no other
    os.kill(watchdog(worker), signal.SIGKILL)
    worker.kill()
    wait_until(lambda: none_lives(pids), "everything below it has ended")


def test_the_memory_limit_counts_what_handlers_start_and_shared_memory_once(system: System) -> None:
    system.start_worker(EXECUTOR_MAX_MEMORY_BYTES=str(300 << 20), MAX_CRASHES="1", WORKER_EXECUTORS="2")
    together = system.submit("hoard", json.dumps({"own": 0, "each": 120 << 20, "children": 3}))
    shared = system.submit("hoard", json.dumps({"own": 150 << 20, "each": 0, "children": 3, "seconds": 3.0}))
    error = system.ended(together, 30).summary.error
    assert error is not None
    assert "more than 300 MiB" in error.message
    assert system.ended(shared).summary.state is TaskState.COMPLETED
