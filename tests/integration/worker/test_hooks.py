"""Hooks run around attempts in executors of each kind, and none of their errors costs a task."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from firmq.shared.domain.task import Attempt, Outcome, TaskDetail, TaskState
from firmq.shared.local.embedded_redis import EmbeddedRedis
from tests.support import one_slot
from tests.support.harness import System, running_system
from tests.support.hooks import ENDS, KINDS
from tests.support.least_privilege import url_of_user

LIMIT = timedelta(seconds=1)
ENOUGH = timedelta(seconds=5)
"""In which a handler that does nothing ends on any machine; what hangs after it is cut off then."""


@pytest.fixture(scope="module")
def everything(redis_server: EmbeddedRedis, tmp_path_factory: pytest.TempPathFactory) -> Iterator[System]:
    redis_server.start()
    folder = tmp_path_factory.mktemp("hooks")
    with one_slot.client_of(redis_server) as redis:
        redis.flushall()
        with running_system(redis, url_of_user(redis_server), folder, TASK_MODULES="tests.support.hooks") as system:
            system.start_worker(
                TRACE_LOCALLY="true", KILL_GRACE="3", LEASE_TIME="30", INITIAL_RETRY_DELAY="0.05", MAX_RETRIES="1"
            )
            system.start_housekeeper()
            yield system


@pytest.fixture
def common(everything: System) -> Iterator[System]:
    """A worker that outlives the hooks of all tests."""
    yield everything
    assert [process.poll() for process in everything.processes] == [None, None], everything.logs()


def ended(system: System, kind: str, **options: Any) -> TaskDetail:
    data = options.pop("data", {})
    return system.ended(system.submit(kind, json.dumps(data), **options))


def lines(attempt: Attempt) -> list[str]:
    """Its log without the times and levels."""
    return [line.split(" ", 2)[2] for line in attempt.logs]


def runs_normally(system: System, kind: str) -> None:
    assert ended(system, kind).summary.state is TaskState.COMPLETED


@pytest.mark.parametrize("kind", KINDS)
def test_hooks_run_in_order_and_share_context_variables_with_the_handler(common: System, kind: str) -> None:
    task = ended(common, kind)
    assert task.summary.state is TaskState.COMPLETED, task.attempts
    [attempt] = task.attempts
    same = ["same thread: True"] if kind == "thread" else []
    assert task.result == ["first", "second", "handler", *same]
    # A handler in a thread, or on a loop of its own, keeps its variables to itself.
    own = ["handler"] if kind == "plain" else ["handler"] if kind == "coroutine" else []
    seen = ", ".join(["first", "second", *own, "last but one", *same])
    assert lines(attempt) == [f"first hook of {task.summary.id}", f"last hook after {seen} of completed"]


@pytest.mark.parametrize("kind", KINDS)
def test_hooks_run_inside_the_span_of_the_attempt(common: System, kind: str) -> None:
    traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    [attempt] = ended(common, kind, meta={"traceparent": traceparent}).attempts
    assert [span.name for span in attempt.spans] == ["first hook"]


@pytest.mark.parametrize("kind", KINDS)
def test_failed_attempts_are_reported_with_what_follows(common: System, kind: str) -> None:
    task = ended(common, kind, data={"fail": "no"})
    assert task.summary.state is TaskState.FAILED
    reports = [line for attempt in task.attempts for line in lines(attempt) if line.startswith("report")]
    assert reports == ["report RuntimeError True 0.05", "report RuntimeError False None"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("stage", "wrong", "error"),
    [
        ("before", "raise", "before_task hook tests.support.hooks.first failed: ValueError: no connection"),
        ("before", "exit", "before_task hook tests.support.hooks.first failed: SystemExit: 3"),
        ("before", "cancel", "before_task hook tests.support.hooks.second failed: CancelledError"),
        ("after", "raise", "after_task hook tests.support.hooks.last_but_one failed: ValueError: no connection"),
        ("after", "exit", "after_task hook tests.support.hooks.last_but_one failed: SystemExit: 3"),
        ("after", "cancel", "after_task hook tests.support.hooks.last failed: CancelledError"),
        ("after", "give-up", "after_task hook tests.support.hooks.last_but_one failed: GiveUp: not today"),
    ],
)
def test_a_hook_that_raises_is_logged_and_changes_nothing(
    common: System, kind: str, stage: str, wrong: str, error: str
) -> None:
    task = ended(common, f"{kind}.{stage}.{wrong}")
    assert task.summary.state is TaskState.COMPLETED
    assert "handler" in task.result
    [attempt] = task.attempts
    assert error in [line.partition("\n")[0] for line in lines(attempt)]  # its traceback follows
    assert any(line.startswith("last hook after") for line in lines(attempt))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("wrong", ENDS)
def test_what_a_future_does_not_take_ends_an_attempt_at_once(common: System, kind: str, wrong: str) -> None:
    for stage in ("before", "after"):
        assert [each.outcome for each in ended(common, f"{kind}.{stage}.{wrong}").attempts] == [Outcome.COMPLETED]
    failed = ended(common, kind, data={"fail": wrong}).attempts
    assert [each.outcome for each in failed] == [Outcome.FAILED] * 2
    # Python makes a RuntimeError of it in a coroutine, and nowhere else.
    expected = "RuntimeError" if (kind, wrong) == ("coroutine", "stop") else ENDS[wrong].__name__
    assert {each.error.type for each in failed if each.error} == {expected}


@pytest.mark.parametrize("kind", KINDS)
def test_a_hook_can_give_up_or_ask_for_a_retry_before_the_handler(common: System, kind: str) -> None:
    refused = ended(common, f"{kind}.before.give-up")
    assert refused.summary.state is TaskState.FAILED
    [attempt] = refused.attempts
    assert attempt.error
    assert attempt.error.type == "GiveUp"
    assert "report GiveUp False None" in lines(attempt)
    delayed = ended(common, f"{kind}.before.later")
    assert delayed.summary.state is TaskState.COMPLETED
    assert [attempt.outcome for attempt in delayed.attempts] == [Outcome.FAILED, Outcome.COMPLETED]
    assert "handler" in delayed.result


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("wrong", ["hang-in-coroutine", "hang"])
def test_the_time_limit_of_a_task_holds_for_its_hooks(common: System, kind: str, wrong: str) -> None:
    before = ended(common, f"{kind}.before.{wrong}", timeout=LIMIT, retry={"max_retries": 0})
    assert [attempt.outcome for attempt in before.attempts] == [Outcome.TIMED_OUT]
    runs_normally(common, kind)


@pytest.mark.parametrize("kind", KINDS)
def test_a_hook_that_hangs_after_the_handler_is_cut_off_and_the_outcome_stands(common: System, kind: str) -> None:
    after = ended(common, f"{kind}.after.hang-in-coroutine", timeout=ENOUGH)
    assert after.summary.state is TaskState.COMPLETED
    [attempt] = after.attempts
    assert any(line.startswith("after_task hook tests.support.hooks.last failed: ") for line in lines(attempt))
    runs_normally(common, kind)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("stage", ["before", "after"])
def test_a_crash_in_a_hook_counts_as_one_in_the_handler(common: System, kind: str, stage: str) -> None:
    task = ended(common, f"{kind}.{stage}.crash")
    assert task.summary.state is TaskState.FAILED
    assert [attempt.outcome for attempt in task.attempts] == [Outcome.CRASHED] * 3
    assert task.summary.error
    assert "status 4" in task.summary.error.message
    runs_normally(common, kind)


@pytest.mark.parametrize("kind", ["coroutine", "thread"])
def test_a_coroutine_that_ignores_its_end_after_the_handler_is_closed_and_the_outcome_stands(
    common: System, kind: str
) -> None:
    task = ended(common, f"{kind}.after.deaf", timeout=ENOUGH)
    assert task.summary.state is TaskState.COMPLETED
    assert len(task.attempts) == 1
    runs_normally(common, kind)


def test_a_plain_hook_does_not_keep_the_loop_from_other_tasks(common: System) -> None:
    runs_normally(common, "coroutine")
    ids = common.submit_many([("coroutine.before.meet", "{}")] * 20)
    for each in ids:
        [attempt] = common.ended(each).attempts
        assert "two hooks met" in lines(attempt), "hooks that wait for each other ran at a time"


def test_a_hook_that_blocks_the_loop_is_interrupted_and_the_outcome_stands(common: System) -> None:
    task = ended(common, "coroutine.after.block")
    assert task.summary.state is TaskState.COMPLETED
    [attempt] = task.attempts
    assert any("LoopBlocked" in line for line in lines(attempt))
