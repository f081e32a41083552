"""What becomes of attempts of all kinds, at one real worker beside one housekeeper that outlive all of these tests."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from firmq.shared.domain.clock import instant_us
from firmq.shared.domain.task import Outcome, TaskState
from firmq.shared.local.embedded_redis import EmbeddedRedis
from tests.support import one_slot
from tests.support.harness import System, running_system, wait_until
from tests.support.least_privilege import url_of_user

NO_RETRY = {"max_retries": 0}


@pytest.fixture(scope="module")
def everything(redis_server: EmbeddedRedis, tmp_path_factory: pytest.TempPathFactory) -> Iterator[System]:
    redis_server.start()
    folder = tmp_path_factory.mktemp("attempts")
    with one_slot.client_of(redis_server) as redis:
        redis.flushall()
        with running_system(redis, url_of_user(redis_server), folder) as system:
            system.start_worker(
                KILL_GRACE="0.3", LEASE_TIME="30", INITIAL_RETRY_DELAY="0.05", MAX_RETRIES="3", WORKER_EXECUTORS="2"
            )
            system.start_housekeeper()
            yield system


@pytest.fixture
def system(everything: System) -> Iterator[System]:
    """The worker has outlived what the test had it do."""
    yield everything
    assert [process.poll() for process in everything.processes] == [None, None], everything.logs()


def test_a_task_runs_and_its_result_is_kept(system: System) -> None:
    task = system.ended(system.submit("process", json.dumps("to be or not to be")))
    assert task.summary.state is TaskState.COMPLETED
    assert task.result["words"] == 6
    [attempt] = task.attempts
    assert attempt.outcome is Outcome.COMPLETED
    assert attempt.enqueued_at is not None
    assert attempt.started_at is not None
    assert attempt.ended_at is not None
    assert attempt.enqueued_at <= attempt.started_at <= attempt.ended_at


@pytest.mark.parametrize("kind", ["async-in-plain", "async-in-thread"])
def test_what_a_plain_function_returns_is_awaited(system: System, kind: str) -> None:
    assert system.ended(system.submit(kind, "0.01")).result == "awaited"


def test_times_of_attempts_are_redis_times(system: System) -> None:
    seconds, us = system.redis.time()
    before = seconds * 1_000_000 + us
    task = system.ended(system.submit("noop"))
    seconds, us = system.redis.time()
    started = task.attempts[0].started_at
    assert started is not None
    assert before - 1000 <= instant_us(started) <= seconds * 1_000_000 + us + 1000


def test_a_failing_task_is_retried_with_growing_delays_and_then_dead_lettered(system: System) -> None:
    task = system.ended(system.submit("fail", '{"message": "disk on fire"}'))
    assert task.summary.state is TaskState.FAILED
    assert [attempt.number for attempt in task.attempts] == [1, 2, 3, 4]
    delays = [attempt.retry_delay for attempt in task.attempts]
    assert delays == [timedelta(seconds=0.05), timedelta(seconds=0.1), timedelta(seconds=0.2), None]
    assert all(attempt.error and attempt.error.message == "disk on fire" for attempt in task.attempts)
    error = task.attempts[-1].error
    assert error is not None
    assert error.traceback is not None
    assert "raise RuntimeError(message)" in error.traceback
    assert "executor.py" not in error.traceback


def test_a_flaky_task_completes_and_keeps_its_failed_attempts(system: System, tmp_path: Path) -> None:
    data = json.dumps({"file": str(tmp_path / "runs"), "failures": 2})
    task = system.ended(system.submit("flaky", data))
    assert task.result == 3
    assert [attempt.outcome for attempt in task.attempts] == [Outcome.FAILED, Outcome.FAILED, Outcome.COMPLETED]


@pytest.mark.parametrize(
    ("data", "error", "message"), [('"key"', "KeyError", "no such thing"), ('"give up"', "GiveUp", "it can never work")]
)
def test_what_is_not_worth_retrying_is_dead_lettered_at_once(
    system: System, data: str, error: str, message: str
) -> None:
    task = system.ended(system.submit("stubborn", data))
    assert task.summary.state is TaskState.FAILED
    [attempt] = task.attempts
    assert attempt.error is not None
    assert attempt.error.type == error
    assert message in attempt.error.message


def test_retry_later_uses_the_delay_that_the_handler_asks_for(system: System) -> None:
    task = system.ended(system.submit("stubborn", '"later"'))
    assert task.summary.state is TaskState.COMPLETED
    assert task.attempts[0].retry_delay == timedelta(seconds=0.3)


def test_a_task_overrides_the_retry_policy(system: System) -> None:
    task = system.ended(system.submit("fail", "{}", retry={"max_retries": 1, "initial_delay": 0.01}))
    assert len(task.attempts) == 2
    assert task.attempts[0].retry_delay == timedelta(seconds=0.01)


def test_a_coroutine_function_is_awaited(system: System) -> None:
    assert system.ended(system.submit("async", "0.01")).result == "awaited"


@pytest.mark.parametrize(
    ("data", "error"),
    [
        ("object", "ResultNotSerializable"),
        ("nan", "ResultNotSerializable"),
        ("half", "ResultNotSerializable"),
        ("half key", "ResultNotSerializable"),
        ("large", "ResultTooLarge"),
    ],
)
def test_a_result_that_cannot_be_kept_is_a_failure_that_says_what_to_change(
    system: System, data: str, error: str
) -> None:
    task = system.ended(system.submit("odd_result", json.dumps(data)))
    assert task.summary.error is not None
    assert task.summary.error.type == error
    assert len(task.attempts) == 1


def test_data_that_does_not_fit_is_dead_lettered_naming_the_member(system: System) -> None:
    task = system.ended(system.submit("note", '{"file": 5}'))
    assert task.summary.error is not None
    assert task.summary.error.type == "InvalidData"
    assert "file" in task.summary.error.message


def test_log_lines_and_progress_of_an_attempt_are_on_record(system: System) -> None:
    task = system.ended(system.submit("talk", '{"lines": 3}', retry=NO_RETRY))
    assert [line.split(" ", 1)[1] for line in task.attempts[0].logs] == [
        "INFO line 1 of 3",
        "INFO line 2 of 3",
        "INFO line 3 of 3",
    ]


@pytest.mark.parametrize("how", ["python", "deaf", "c", "child"])
def test_a_handler_past_its_time_limit_is_stopped_and_the_reason_said(system: System, how: str) -> None:
    beside = system.submit_many([("noop", "null")] * 20)
    task = system.ended(system.submit("hang", json.dumps({"how": how}), retry=NO_RETRY))
    assert task.summary.state is TaskState.FAILED
    [attempt] = task.attempts
    assert attempt.outcome is Outcome.TIMED_OUT
    assert attempt.error is not None
    assert "time limit of 0.5 s" in attempt.error.message
    assert all(system.ended(each).summary.state is TaskState.COMPLETED for each in beside)


@pytest.mark.parametrize(
    ("how", "reason"),
    [("exit", "ended with status 3"), ("exit0", "ended with status 0"), ("segfault", "SIGSEGV"), ("kill", "SIGKILL")],
)
def test_a_handler_that_kills_its_process_is_quarantined_and_its_neighbours_complete(
    system: System, how: str, reason: str
) -> None:
    beside = system.submit_many([("noop", "null")] * 100)
    task = system.ended(system.submit("crash", json.dumps({"how": how})))
    beside += system.submit_many([("noop", "null")] * 100)
    assert task.summary.state is TaskState.FAILED
    assert task.summary.crashes == 3
    assert task.summary.failures == 0
    assert [attempt.outcome for attempt in task.attempts] == [Outcome.CRASHED] * 3
    assert task.summary.error is not None
    assert task.summary.error.type == "PoisonTask"
    assert reason in task.summary.error.message
    neighbours = [system.ended(each) for each in beside]
    assert {each.summary.state for each in neighbours} == {TaskState.COMPLETED}
    assert {len(each.attempts) for each in neighbours} == {1}


def test_sys_exit_in_a_handler_is_an_ordinary_failure(system: System) -> None:
    task = system.ended(system.submit("crash", '{"how": "sys.exit"}', retry=NO_RETRY))
    assert task.summary.error is not None
    assert task.summary.error.type == "SystemExit"


def test_cancelling_a_running_task_stops_it(system: System) -> None:
    task_id = system.submit("slowly", '{"seconds": 60}')
    wait_until(lambda: system.records.get(task_id).summary.progress, "it runs")
    assert system.queues.cancel(task_id, "no longer needed") is TaskState.RUNNING
    task = system.ended(task_id, seconds=20)
    assert task.summary.state is TaskState.CANCELLED
    assert task.attempts[-1].outcome is Outcome.CANCELLED


def test_a_deaf_handler_is_killed_when_it_is_cancelled(system: System) -> None:
    task_id = system.submit("hang", '{"how": "deaf"}', timeout=timedelta(seconds=60))
    wait_until(lambda: system.records.state(task_id) is TaskState.RUNNING, "it runs")
    system.queues.cancel(task_id, "")
    assert system.ended(task_id, seconds=20).summary.state is TaskState.CANCELLED


def test_logging_while_a_large_result_is_sent_corrupts_nothing(system: System) -> None:
    tasks = system.submit_many([("chatter", "{}"), ("noop", "null")] * 10)
    for task_id in tasks:
        task = system.ended(task_id)
        assert (task.summary.state, len(task.attempts)) == (TaskState.COMPLETED, 1)


@pytest.mark.parametrize(
    ("data", "error"),
    [
        ("cancelled", "TaskCancelled"),
        ("unspeakable", "Unspeakable"),
        ("long name", "E" * 200),
        ("nameless", "Nameless"),
        ("half", "ValueError"),
        ("deep", "ResultNotSerializable"),
    ],
)
def test_what_no_handler_should_do_is_an_ordinary_failure(system: System, data: str, error: str) -> None:
    task = system.ended(system.submit("misbehave", json.dumps(data), retry=NO_RETRY))
    assert task.summary.state is TaskState.FAILED
    assert task.summary.error is not None
    assert task.summary.error.type == error
    assert len(task.attempts) == 1


def test_a_paused_queue_is_left_alone_until_it_is_resumed(system: System) -> None:
    system.queues.pause("normal", "maintenance")
    paused, running = system.submit("noop"), system.submit("noop", queue="high")
    system.ended(running)
    assert system.records.state(paused) is TaskState.PENDING
    system.queues.resume("normal")
    assert system.ended(paused).summary.state is TaskState.COMPLETED
