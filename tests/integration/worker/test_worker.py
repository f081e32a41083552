"""What a worker does with tasks of all kinds, as real processes on a real Redis."""

from __future__ import annotations

import json
import os
import resource
import signal
import time
from pathlib import Path

import pytest

from firmq.shared.domain.task import Outcome, TaskState
from firmq.shared.http.bind import FILES
from firmq.shared.stores.task_types import TaskTypes
from firmq.worker.engine.lane import SLOW
from tests.support.harness import System, alive, wait_until
from tests.support.keys import keys


def test_a_result_that_is_too_large_is_final_names_the_setting_and_keeps_its_beginning(system: System) -> None:
    system.start_worker(MAX_RESULT_BYTES="64")
    task = system.ended(system.submit("echo", json.dumps({"rows": "x" * 2000})))
    [attempt] = task.attempts
    assert task.summary.error is not None
    for name in ("or raise MAX_RESULT_BYTES", "PAYLOAD_STORE", "PAYLOAD_THRESHOLD"):
        assert name in task.summary.error.message
    assert attempt.error is not None
    assert attempt.error.traceback is not None
    assert 'The result began: {"rows":"xxx' in attempt.error.traceback
    assert "x" * 1100 not in attempt.error.traceback


def test_the_beginning_of_a_result_with_hidden_fields_is_not_kept(system: System) -> None:
    system.start_worker(MAX_RESULT_BYTES="64")
    task = system.ended(system.submit("echo", json.dumps({"Db_Password": "hunter2", "rows": "x" * 2000})))
    assert task.attempts[0].error is not None
    assert "hunter2" not in str(task.attempts[0].error.traceback)
    assert "DASHBOARD_REDACT" in str(task.attempts[0].error.traceback)


def test_log_lines_are_bounded_to_the_last(system: System) -> None:
    system.start_worker(MAX_RETRIES="0", MAX_LOG_BYTES="1000")
    task = system.ended(system.submit("talk", '{"lines": 500}'))
    logs = task.attempts[0].logs
    assert logs[-1].endswith("line 500 of 500")
    assert sum(map(len, logs)) <= 1000


def test_progress_is_visible_while_a_handler_runs(system: System) -> None:
    system.start_worker(WORKER_EXECUTORS="1")
    system.submit("slowly", '{"seconds": 0}')  # which reports some just before
    task_id = system.submit("slowly", '{"seconds": 60}')
    progress = wait_until(lambda: system.records.get(task_id).summary.progress, "progress was seen")
    assert (progress.fraction, progress.message) == (0.4, "reading")


def test_a_handler_that_eats_memory_is_killed_with_the_limit_named(system: System) -> None:
    system.start_worker(EXECUTOR_MAX_MEMORY_BYTES=str(300 << 20), MAX_CRASHES="1", WORKER_EXECUTORS="2")
    beside = system.submit_many([("noop", "null")] * 20)
    task = system.ended(system.submit("gobble", "{}"))
    assert task.summary.error is not None
    assert "more than 300 MiB" in task.summary.error.message
    assert all(system.ended(each).summary.state is TaskState.COMPLETED for each in beside)


def test_a_fast_task_behind_a_slow_one_moves_to_a_free_executor(system: System) -> None:
    system.start_worker(WORKER_EXECUTORS="2")
    # Many fast ones teach the worker to claim ahead; then a slow one comes with fast ones right behind it.
    for each in system.submit_many([("noop", "null")] * 500):
        system.ended(each)
    slow = system.submit_many([("slowly", '{"seconds": 600}')] + [("noop", "null")] * 50)
    for each in slow[1:]:
        assert system.ended(each).summary.state is TaskState.COMPLETED
    assert system.records.state(slow[0]) is TaskState.RUNNING


def test_what_was_claimed_ahead_is_given_back_when_all_executors_are_slow(system: System) -> None:
    system.start_worker(WORKER_EXECUTORS="1")
    for each in system.submit_many([("noop", "null")] * 300):
        system.ended(each)
    tasks = system.submit_many([("slowly", '{"seconds": 600}')] + [("noop", "null")] * 20)
    wait_until(lambda: system.records.state(tasks[0]) is TaskState.RUNNING, "the slow one runs")
    wait_until(lambda: system.records.counts()[TaskState.PENDING] == 20, "the others wait in the queue again")
    other = system.start_worker(WORKER_EXECUTORS="1")
    for each in tasks[1:]:
        detail = system.ended(each)
        assert detail.summary.state is TaskState.COMPLETED
        assert len(detail.attempts) == 1, "giving back costs no attempt"
    assert other.poll() is None


def warm(system: System) -> None:
    """Many fast tasks teach a worker to claim ahead."""
    for each in system.submit_many([("noop", "null")] * 400):
        system.ended(each)


def test_a_single_fast_task_never_waits_at_a_worker_that_is_slow_while_another_is_idle(system: System) -> None:
    for _ in range(2):
        system.start_worker(WORKER_EXECUTORS="1")
    warm(system)
    slow = system.submit("slowly", '{"seconds": 600}')
    wait_until(lambda: system.records.state(slow) is TaskState.RUNNING, "the slow one runs")
    time.sleep(3 * SLOW)
    for _ in range(12):
        assert system.ended(system.submit("noop")).summary.state is TaskState.COMPLETED
    assert system.records.state(slow) is TaskState.RUNNING


def test_tasks_behind_an_isolated_one_move_to_another_worker(system: System) -> None:
    for _ in range(2):
        system.start_worker(WORKER_EXECUTORS="1")
    warm(system)
    system.queues.pause("normal", "so that all of them are claimed together")
    suspect, *others = system.submit_many([("slowly", '{"seconds": 600}')] + [("noop", "null")] * 50)
    system.redis.hset(keys.rq_job(suspect), "losses", 1)  # its worker died
    system.queues.resume("normal")
    for each in others:
        assert system.ended(each).summary.state is TaskState.COMPLETED
    assert system.records.state(suspect) is TaskState.RUNNING


def test_a_worker_that_is_full_leaves_the_bell_to_others(system: System) -> None:
    system.start_worker(WORKER_EXECUTORS="1")
    task_id = system.submit("slowly", '{"seconds": 60}')
    wait_until(lambda: system.records.get(task_id).summary.progress, "it runs")
    system.submit_many([("noop", "null")] * 3)
    before = system.redis.info("commandstats")["cmdstat_blpop"]["calls"]
    wait_until(lambda: system.redis.llen(keys.wakeup("normal")) > 0, "the bell rings for another")
    other = system.start_worker(WORKER_EXECUTORS="1")
    wait_until(lambda: system.records.counts()[TaskState.COMPLETED] == 3, "another did them")
    assert system.redis.info("commandstats")["cmdstat_blpop"]["calls"] - before < 40
    assert other.poll() is None


def test_sigterm_finishes_running_tasks_and_requeues_the_rest(system: System, tmp_path: Path) -> None:
    worker = system.start_worker(WORKER_EXECUTORS="2")
    ran, until = tmp_path / "ran", tmp_path / "until"
    long, short = json.dumps({"file": str(ran), "until": str(until)}), json.dumps({"file": str(ran)})
    tasks = system.submit_many([("note-and-wait", long)] * 2 + [("note", short)] * 4)
    wait_until(lambda: ran.exists() and len(ran.read_text().splitlines()) == 2, "two run")
    worker.terminate()
    wait_until(lambda: system.workers.all()[0].state == "draining", "it drains")
    until.touch()
    assert worker.wait(60) == 0
    counts = system.records.counts()
    assert (counts[TaskState.COMPLETED], counts[TaskState.PENDING]) == (2, 4)
    system.start_worker(WORKER_EXECUTORS="2")
    details = [system.ended(each) for each in tasks]
    assert {len(each.attempts) for each in details} == {1}
    assert len(ran.read_text().splitlines()) == 6


def test_a_second_sigterm_stops_at_once_and_loses_nothing(system: System) -> None:
    worker = system.start_worker(WORKER_EXECUTORS="2")
    tasks = system.submit_many([("slowly", '{"seconds": 60}')] * 4)
    # What is only claimed goes back as if nothing had been; a handler that has begun is interrupted.
    wait_until(lambda: sum(bool(system.records.get(each).summary.progress) for each in tasks) == 2, "two have begun")
    worker.send_signal(signal.SIGTERM)
    wait_until(lambda: system.workers.all()[0].state == "draining" or worker.poll() is not None, "it drains")
    worker.send_signal(signal.SIGTERM)
    assert worker.wait(20) == 0
    assert system.records.counts()[TaskState.PENDING] == 4
    interrupted = [each for each in map(system.records.get, tasks) if each.attempts]
    assert {each.attempts[0].outcome for each in interrupted} == {Outcome.INTERRUPTED}
    assert {each.summary.failures + each.summary.crashes for each in interrupted} == {0}


def test_a_task_that_stops_its_workers_is_isolated_then_waits_and_is_dead_lettered_in_the_end(system: System) -> None:
    task_id = system.submit("crash", '{"how": "stop the worker"}')

    def stopped() -> tuple[str, int]:
        assert system.start("worker", DRAIN_GRACE="0.1").wait(60) == 0
        task = system.records.get(task_id)
        assert task.attempts[-1].outcome is Outcome.INTERRUPTED
        return task.summary.state, int(system.redis.hget(keys.rq_job(task_id), "losses") or 0)

    assert [stopped() for _ in range(4)] == [
        *((TaskState.PENDING, times) for times in (1, 2, 3)),
        (TaskState.RETRYING, 4),
    ]
    system.redis.hset(keys.rq_job(task_id), "losses", 19)
    system.start_housekeeper()
    wait_until(lambda: system.records.state(task_id) is TaskState.PENDING, "its pause is over")
    state, _ = stopped()
    assert state is TaskState.FAILED
    error = system.records.get(task_id).summary.error
    assert error is not None
    assert error.type == "PoisonTask"
    assert "20 workers in a row were stopped within 60 s" in error.message


def test_the_grace_period_ends_a_drain(system: System) -> None:
    worker = system.start_worker(DRAIN_GRACE="0.5", WORKER_EXECUTORS="2")
    system.submit_many([("slowly", '{"seconds": 60}')] * 2)
    wait_until(lambda: system.records.counts()[TaskState.RUNNING] == 2, "two run")
    worker.terminate()
    assert worker.wait(20) == 0
    assert system.records.counts()[TaskState.PENDING] == 2


def test_a_handler_that_forks_runs_once_and_leaves_no_second_executor(system: System, tmp_path: Path) -> None:
    worker = system.start_worker(WORKER_EXECUTORS="1")
    ran = tmp_path / "ran"
    tasks = [system.submit("fork", json.dumps({"file": str(ran)})) for _ in range(3)]
    for task_id in tasks:
        task = system.ended(task_id)
        assert (task.summary.state, task.result, len(task.attempts)) == (TaskState.COMPLETED, "parent", 1)
    assert ran.read_text() == "ran\n" * 3
    assert len(system.executors(worker)) == 1


def test_a_handler_that_closes_the_executors_pipes_is_told_so(system: System) -> None:
    system.start_worker(MAX_CRASHES="1")
    task = system.ended(system.submit("misbehave", '"close"'))
    assert task.summary.error is not None
    assert "memory" not in task.summary.error.message


@pytest.mark.parametrize("stray", [b"stray text\n", b"x", b"\x00\x01\x00\x00" * 8, b"\xf1tq\x01" + b"\xff" * 12])
def test_stray_bytes_in_an_executors_pipe_are_a_crash_at_once(system: System, stray: bytes) -> None:
    system.start_worker(MAX_CRASHES="1", WORKER_EXECUTORS="1")
    task_id = system.submit("scribble", json.dumps({"data": stray.hex()}))
    error = system.ended(task_id, 30).summary.error
    assert error is not None
    assert error.type == "PoisonTask"
    assert "the handler wrote into the executor's connection" in error.message
    assert system.ended(system.submit("echo", '"next"')).result == "next"


def test_executors_that_a_thread_keeps_alive_are_ended_when_they_are_replaced(system: System) -> None:
    worker = system.start_worker(WORKER_EXECUTORS="1", EXECUTOR_MAX_TASKS="1")
    for task_id in system.submit_many([("linger", "{}")] * 3):
        system.ended(task_id)
    wait_until(lambda: len([pid for pid in system.executors(worker) if alive(pid)]) == 1, "only one is left")


def test_types_are_published_again_when_redis_comes_back_empty(system: System) -> None:
    system.start_worker()
    system.redis.flushall()
    wait_until(lambda: TaskTypes(system.redis).all(), "the types are back")
    assert system.ended(system.submit("noop")).summary.state is TaskState.COMPLETED


def test_an_executor_is_replaced_after_so_many_tasks(system: System) -> None:
    worker = system.start_worker(WORKER_EXECUTORS="1", EXECUTOR_MAX_TASKS="50")
    first = system.executors(worker)
    for each in system.submit_many([("noop", "null")] * 200):
        assert system.ended(each).summary.state is TaskState.COMPLETED
    wait_until(lambda: set(system.executors(worker)).isdisjoint(first), "another executor works")


def test_higher_priorities_go_first_and_none_starves(system: System, tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    for queue in ("low", "normal", "high", "critical"):
        system.submit_many([("note", json.dumps({"file": str(ran), "text": queue}))] * 140, queue)
    system.start_worker(WORKER_EXECUTORS="1")
    system.all_ended()
    order = [line.split()[1] for line in ran.read_text().splitlines()]
    first = order[:140]
    assert len(order) == 560
    assert first.count("critical") > first.count("high") > first.count("normal") > first.count("low") > 0


def test_a_killed_executor_costs_only_the_task_that_it_ran(system: System) -> None:
    worker = system.start_worker(WORKER_EXECUTORS="2")
    system.start_housekeeper()
    slow = system.submit("long-at-first", "{}")
    wait_until(lambda: system.records.state(slow) is TaskState.RUNNING, "it runs")
    beside = system.submit_many([("noop", "null")] * 100)
    wait_until(lambda: system.records.counts()[TaskState.COMPLETED] == 100, "the others are done")
    for pid in system.executors(worker):
        os.kill(pid, signal.SIGKILL)
    task = system.ended(slow)
    assert task.summary.state is TaskState.COMPLETED
    assert [attempt.outcome for attempt in task.attempts] == [Outcome.CRASHED, Outcome.COMPLETED]
    assert "SIGKILL" in (task.attempts[0].error.message if task.attempts[0].error else "")
    assert {len(system.records.get(each).attempts) for each in beside} == {1}


def test_a_worker_out_of_file_descriptors_starts_the_executor_later(system: System) -> None:
    worker = system.start_worker(WORKER_EXECUTORS="1")
    system.start_housekeeper()
    system.ended(system.submit("noop"))
    soft, hard = resource.prlimit(worker.pid, resource.RLIMIT_NOFILE)
    resource.prlimit(worker.pid, resource.RLIMIT_NOFILE, (3, hard))  # what is open stays open
    [executor] = system.executors(worker)
    os.kill(executor, signal.SIGKILL)
    wait_until(lambda: "executor not started" in system.logs(), "it is short of files")
    task = system.submit("noop")
    resource.prlimit(worker.pid, resource.RLIMIT_NOFILE, (soft, hard))
    assert system.ended(task).summary.state is TaskState.COMPLETED
    assert worker.poll() is None


@pytest.mark.parametrize("part", ["worker", "housekeeper"])
def test_a_part_makes_room_for_files(system: System, part: str) -> None:
    system.as_shipped = True  # what it inherits is this process's
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (200, hard))
    try:
        process = system.start(part)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    room = FILES if hard == resource.RLIM_INFINITY else min(FILES, hard)
    wait_until(lambda: resource.prlimit(process.pid, resource.RLIMIT_NOFILE)[0] == room, "it has made room")


def test_a_worker_that_cannot_import_its_handlers_says_which_and_ends_with_status_2(system: System) -> None:
    worker = system.start("worker", TASK_MODULES="no_such_module")
    assert worker.wait(20) == 2
    assert "module no_such_module cannot be imported" in system.logs()


def test_a_worker_leaves_the_register_when_it_ends(system: System) -> None:
    worker = system.start_worker()
    assert len(system.workers.all()) == 1
    worker.terminate()
    worker.wait(20)
    assert system.workers.all() == []
    assert system.redis.smembers(keys.RQ_WORKERS) == set()
