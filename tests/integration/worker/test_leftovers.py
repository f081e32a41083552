"""What a handler leaves behind in its executor reaches no other task."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from datetime import timedelta
from functools import partial
from pathlib import Path

import pytest

from firmq.shared.domain.task import Outcome, TaskState
from firmq.shared.stores.task_types import TaskTypes
from tests.support.handlers import LEAVE_BEHIND
from tests.support.harness import QUICK, System, alive, wait_until


@pytest.mark.parametrize("how", ["sleep", "block"])
def test_a_coroutine_that_swallows_its_cancellation_holds_up_nothing(system: System, how: str) -> None:
    worker = system.start_worker(LEASE_TIME="60")
    assert system.ended(system.submit("async", "0")).result == "awaited"
    before = system.executors(worker, "concurrent")
    first = system.submit("unending", json.dumps({"how": how}))
    assert system.ended(first, 20).result == "False"
    behind = system.submit_many([("async", "0")] * 5)
    assert [system.ended(each).result for each in behind] == ["awaited"] * 5
    assert all(len(system.records.get(each).attempts) == 1 for each in (first, *behind))
    assert system.executors(worker, "concurrent") == before
    if how == "block":
        assert "handler unending blocked the event loop" in system.logs()
        assert "in sleep_on" in system.logs()


@pytest.mark.parametrize("how", ["close", "run"])
def test_an_event_loop_that_a_handler_closed_breaks_no_task_after_it(system: System, how: str) -> None:
    system.start_worker(WORKER_EXECUTORS="1", LEASE_TIME="60", MAX_RETRIES="0")
    kinds = [("async", "0"), ("own-loop", json.dumps({"how": how})), ("async", "0")]
    assert [system.ended(system.submit(*each)).result for each in kinds] == ["awaited", how, "awaited"]


@pytest.mark.parametrize("stopped_by", ["limit", "cancelling"])
def test_a_task_that_is_stopped_within_an_import_leaves_no_broken_module(
    system: System, tmp_path: Path, stopped_by: str
) -> None:
    slow = tmp_path / "slow"
    slow.touch()
    (tmp_path / "touchy.py").write_text(f"""
import sys, time
from pathlib import Path
assert not hasattr(sys, "touched"), "it cannot be initialised twice"
sys.touched = True
Path({str(tmp_path / "begun")!r}).touch()
while Path({str(slow)!r}).exists():
    time.sleep(0.01)
""")
    worker = system.start_worker(WORKER_EXECUTORS="1", LEASE_TIME="60", MAX_RETRIES="0", PYTHONPATH=str(tmp_path))
    [before] = system.executors(worker)
    timeout = timedelta(seconds=0.5 if stopped_by == "limit" else 60)
    stopped = system.submit("import", '{"name": "touchy"}', timeout=timeout)
    behind = system.submit("noop")
    wait_until((tmp_path / "begun").exists, "the import began")
    if stopped_by == "cancelling":
        system.queues.cancel(stopped, "")
    [attempt] = system.ended(stopped).attempts
    assert attempt.outcome is (Outcome.TIMED_OUT if stopped_by == "limit" else Outcome.CANCELLED)
    slow.unlink()
    assert system.ended(system.submit("import", '{"name": "touchy"}')).result == "touchy"
    assert [attempt.outcome for attempt in system.ended(behind).attempts] == [Outcome.COMPLETED]
    wait_until(lambda: before not in system.executors(worker), "the executor is gone")


def _is_gone(system: System, worker: subprocess.Popen[bytes], executor: int) -> bool:
    return executor not in system.executors(worker)


def test_process_state_is_restored_for_the_next_task(system: System) -> None:
    worker = system.start_worker(WORKER_EXECUTORS="1", LEASE_TIME="60", MAX_RETRIES="0", MAX_CRASHES="1")
    before = system.ended(system.submit("surroundings", "{}")).result
    assert before is not None
    differences = {}
    for what in LEAVE_BEHIND:
        [executor] = [pid for pid in system.executors(worker) if alive(pid)]
        left = system.submit("leave", json.dumps({"what": what}))
        after = system.ended(system.submit("surroundings", '{"seconds": 0.1}'))
        assert [attempt.outcome for attempt in system.ended(left).attempts] == [Outcome.COMPLETED], what
        if after.result != before or [attempt.outcome for attempt in after.attempts] != [Outcome.COMPLETED]:
            differences[what] = after.result or after.attempts
        if what in ("closed stdout", "no stdout", "other stderr"):
            wait_until(partial(_is_gone, system, worker, executor), f"{what} cost its executor")
    assert differences == {}
    logs = system.logs()
    for named in ("an alarm", "environment variables (PATH)", "the working directory", "a closed standard stream"):
        assert f"handler leave left behind {named}" in logs
    assert logs.count('"replaced": true') == 2  # each reason once


def test_a_process_that_a_handler_left_behind_ends_and_its_executor_does_not(system: System) -> None:
    worker = system.start_worker(WORKER_EXECUTORS="1")
    [executor] = system.executors(worker)
    left = system.ended(system.submit("leave-a-process", "{}")).result
    wait_until(lambda: not alive(left), "it has ended")
    assert system.executors(worker) == [executor]


def test_what_a_thread_says_that_an_earlier_task_left_behind_is_on_no_other_task(system: System) -> None:
    worker = system.start_worker(WORKER_EXECUTORS="1", LEASE_TIME="60")
    [executor] = system.executors(worker)
    left = system.submit("stray", '{"secret": "tenant A"}')
    assert system.ended(left).result == "tenant A"
    tasks = [system.ended(system.submit("helped", '{"words": "tenant B", "seconds": 0.5}')) for _ in range(3)]
    assert system.executors(worker) == [executor]
    assert system.logs().count("tenant A from depth 1")  # it goes on all the while
    for task in tasks:
        assert task.result == [task.summary.id] * 2
        [attempt] = task.attempts
        assert [line.partition(" ")[2] for line in attempt.logs] == [
            "WARNING tenant B by thread",
            "WARNING tenant B by pool",
        ]
        assert not task.summary.progress or task.summary.progress.message != "tenant A"
        lines = [line for line in system.logs().splitlines() if task.summary.id in line]
        assert lines
        assert not [line for line in lines if "tenant A" in line]
    assert "handler stray left behind threads that still run: Thread-1 (run)" in system.logs()


def test_a_handler_can_print_when_the_reader_of_the_log_is_gone(system: System) -> None:
    reader, writer = os.pipe()
    worker = subprocess.Popen(
        [sys.executable, "-m", "firmq", "worker"],
        env={
            **os.environ,
            **QUICK,
            "REDIS_URL": system.url,
            "MAX_RETRIES": "0",
            "LEASE_TIME": "60",
            "WORKER_EXECUTORS": "2",
        },
        stdout=writer,
        stderr=writer,
    )
    os.close(writer)
    system.processes.append(worker)
    wait_until(lambda: TaskTypes(system.redis).all(), "the worker is ready")
    os.close(reader)
    assert system.ended(system.submit("surroundings", "{}")).summary.state is TaskState.COMPLETED


def test_calls_in_threads_that_hang_do_not_starve_later_tasks(system: System) -> None:
    worker = system.start_worker(LEASE_TIME="60", MAX_RETRIES="0", EXECUTOR_SLOTS="4", TASK_TIMEOUT="30")
    assert system.ended(system.submit("call-in-thread", "{}")).result == "called"
    before = system.executors(worker, "concurrent")
    for _ in range(2):  # more calls than there are threads
        hang = system.submit("hang-in-thread", '{"calls": 16}', timeout=timedelta(seconds=0.5))
        assert [attempt.outcome for attempt in system.ended(hang).attempts] == [Outcome.TIMED_OUT]
    assert system.ended(system.submit("call-in-thread", "{}")).result == "called"
    assert system.executors(worker, "concurrent") == before
    system.submit("hang-in-thread", '{"calls": 1}', timeout=timedelta(seconds=0.5))
    wait_until(partial(_is_gone, system, worker, before[0]), "the executor is replaced")
    assert system.ended(system.submit("call-in-thread", "{}")).result == "called"


@pytest.mark.parametrize(
    ("fails", "asks"), [("plain", "is-held"), ("threaded", "is-held-async"), ("async", "is-held-async")]
)
def test_the_data_of_a_failed_attempt_are_gone(system: System, fails: str, asks: str) -> None:
    system.start_worker(WORKER_EXECUTORS="1", MAX_RETRIES="0")
    for _ in range(2):
        assert system.ended(system.submit(f"fail-{fails}", "{}")).summary.state is TaskState.FAILED
    assert system.ended(system.submit(asks, "{}")).result == [False, False]


@pytest.mark.parametrize("kind", ["pooled", "pooled-threaded"])
def test_a_pool_of_processes_that_a_module_keeps_fails_no_later_task(system: System, kind: str) -> None:
    system.start_worker(WORKER_EXECUTORS="1", MAX_RETRIES="0", LEASE_TIME="60")
    for number in range(3):
        ended = system.ended(system.submit(kind, json.dumps({"numbers": [-number, 7]})))
        assert ended.result == [number, 7], ended.attempts
        time.sleep(0.05)  # idle, so that the executor looks for processes
    assert '"replaced": true' in system.logs()


def test_output_that_is_not_read_holds_up_no_other_task(system: System) -> None:
    reader, system.log_to = os.pipe()
    system.start_worker(WORKER_EXECUTORS="1", MAX_RETRIES="0", LEASE_TIME="60")
    talker = system.submit("talk", '{"lines": 20000}')
    behind = system.submit_many([("noop", "null")] * 5)
    assert [system.ended(each).summary.state for each in behind] == [TaskState.COMPLETED] * 5
    assert system.ended(talker).summary.state is TaskState.FAILED
    os.close(reader)
    os.close(system.log_to)
