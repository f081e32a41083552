"""Registered hooks, their order, and what becomes of their errors; in local mode, which needs no processes."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from contextvars import ContextVar
from dataclasses import fields
from datetime import timedelta

import pytest

from firmq import (
    AttemptOutcome,
    CurrentTask,
    GiveUp,
    LocalClient,
    TaskFailed,
    after_task,
    before_task,
    executor_started,
    on_failure,
)
from firmq.shared.domain.task import Outcome, TaskState
from firmq.worker.handlers import hooks
from firmq.worker.handlers.registry import HandlerError

EXAMPLES = ["firmq.worker.handlers.examples"]
tenant: ContextVar[str] = ContextVar("tenant", default="nobody's")
Seen = list[tuple[str, object]]


@pytest.fixture(autouse=True)
def no_hooks() -> Iterator[None]:
    """No hooks but those of the test."""
    kinds: list[list[hooks.Hook]] = [getattr(hooks.HOOKS, each.name) for each in fields(hooks.Hooks)]
    known = [list(kind) for kind in kinds]
    for kind in kinds:
        kind.clear()
    yield
    for kind, before in zip(kinds, known, strict=True):
        kind[:] = before


def register(seen: Seen) -> None:
    @before_task
    async def enter(task: CurrentTask) -> None:
        await asyncio.sleep(0)
        tenant.set("acme")
        seen.append(("enter", task.type))

    @before_task
    def look(task: CurrentTask) -> None:
        seen.append(("look", tenant.get()))

    @after_task
    def leave(task: CurrentTask, outcome: AttemptOutcome) -> None:
        seen.append(("leave", outcome.outcome))

    @after_task
    async def measure(task: CurrentTask, outcome: AttemptOutcome) -> None:
        seen.append(("measure", tenant.get()))

    @on_failure
    def report(task: CurrentTask, outcome: AttemptOutcome) -> None:
        seen.append(("report", (type(outcome.error).__name__, outcome.will_retry)))


def test_local_mode_runs_the_hooks_of_tasks_in_order() -> None:
    seen: Seen = []
    register(seen)
    queue = LocalClient(EXAMPLES)
    queue.submit("process", "one two")
    assert seen == [("enter", "process"), ("look", "acme"), ("measure", "acme"), ("leave", Outcome.COMPLETED)]
    assert tenant.get() == "nobody's"


def test_each_failed_attempt_is_reported_with_what_follows() -> None:
    seen: Seen = []
    register(seen)
    queue = LocalClient(EXAMPLES)
    queue.submit("process", "", max_retries=1)
    assert [what for name, what in seen if name == "report"] == [
        ("NothingToProcess", True),
        ("NothingToProcess", False),
    ]
    assert seen[-3:] == [("report", ("NothingToProcess", False)), ("measure", "acme"), ("leave", Outcome.FAILED)]


def test_an_error_of_a_hook_is_logged_with_its_name_and_changes_nothing(caplog: pytest.LogCaptureFixture) -> None:
    class Unprintable(Exception):
        def __str__(self) -> str:
            raise self

    @before_task
    def breaks(task: CurrentTask) -> None:
        raise Unprintable

    @after_task
    def exits(task: CurrentTask, outcome: AttemptOutcome) -> None:
        raise SystemExit

    queue = LocalClient(EXAMPLES)
    with caplog.at_level(logging.ERROR):
        assert queue.result(queue.submit("process", "one two").task_id)["words"] == 2
    first, second = caplog.messages
    assert first.startswith("before_task hook ")
    assert "breaks failed: " in first
    assert second.startswith("after_task hook ")
    assert second.endswith("exits failed: SystemExit")


def test_a_hook_before_the_handler_can_give_up() -> None:
    ended: list[AttemptOutcome] = []

    @before_task
    def closed(task: CurrentTask) -> None:
        raise GiveUp("the shop is closed")

    @after_task
    def note(task: CurrentTask, outcome: AttemptOutcome) -> None:
        ended.append(outcome)

    queue = LocalClient(EXAMPLES)
    with pytest.raises(TaskFailed, match="the shop is closed"):
        queue.result(queue.submit("process", "one two").task_id)
    assert [(each.state, each.will_retry) for each in ended] == [(TaskState.FAILED, False)]


def test_a_hook_that_cannot_be_called_is_refused_when_it_is_registered() -> None:
    with pytest.raises(HandlerError, match=r"before_task hook .* must accept \(task\): too many positional arguments"):
        before_task(lambda: None)  # type: ignore[type-var]
    with pytest.raises(HandlerError, match=r"after_task hook .* must accept \(task, outcome\)"):
        after_task(lambda task: None)  # type: ignore[type-var]


def test_a_function_is_registered_once() -> None:
    def once(executor: object) -> None: ...

    assert executor_started(executor_started(once)) is once
    assert [each.function for each in hooks.HOOKS.executor_started] == [once]


def test_the_delay_before_a_retry_is_known() -> None:
    outcome = AttemptOutcome.after(ValueError(), Outcome.FAILED, TaskState.RETRYING, 1_500_000, ValueError())
    assert (outcome.failed, outcome.will_retry, outcome.retry_delay) == (True, True, timedelta(seconds=1.5))
