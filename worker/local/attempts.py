"""The attempts of a task in the caller's process, judged as in an executor."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from datetime import datetime, timedelta
from typing import Any

from pydantic import ValidationError

from firmq.shared.domain.clock import instant
from firmq.shared.submission.answers import Attempt, Error
from firmq.worker.executors.ipc import Assignment, EndedAttempt
from firmq.worker.executors.outcomes import InvalidData, Outcomes, explain
from firmq.worker.executors.recorder import Recorder
from firmq.worker.handlers import hooks
from firmq.worker.handlers.attempt_steps import StepContext
from firmq.worker.handlers.context import LOCAL_WORKER, CurrentTask, current
from firmq.worker.handlers.hooks import COMPLETED, AttemptOutcome, Hook
from firmq.worker.handlers.parent_results import ParentResults, ParentTask
from firmq.worker.handlers.registry import Handler
from firmq.worker.local.steps import LocalSteps


def run(
    handler: Handler,
    first: Assignment,
    outcomes: Outcomes,
    recorder: Recorder,
    due: datetime,
    signals: Mapping[str, Any],
    run_child: Callable[[str, Mapping[str, Any]], ParentTask],
) -> tuple[EndedAttempt, list[Attempt], LocalSteps]:
    """Runs a task until it has ended, without waiting for retries. Returns the last outcome, all attempts and steps."""
    attempts: list[Attempt] = []
    steps, failures = LocalSteps(signals, run_child), 0
    while True:
        data = first.data if steps.data is None else steps.data
        assignment = first._replace(attempt=len(attempts) + 1, failures=failures, data=data)
        steps.now = due
        recorder.replay = None
        outcome = _run_once(handler, assignment, outcomes, recorder, steps)
        attempts.append(_attempt(assignment.attempt, due, outcome))
        if outcome.state == "scheduled":
            due = instant(outcome.due_us or 0)
            continue
        if outcome.state != "retrying":
            return outcome, attempts, steps
        failures += 1
        due += timedelta(microseconds=outcome.delay_us or 0)


def _run_once(
    handler: Handler, assignment: Assignment, outcomes: Outcomes, recorder: Recorder, steps: LocalSteps
) -> EndedAttempt:
    task = CurrentTask(
        id=assignment.id.decode(),
        type=handler.name,
        attempt=assignment.attempt,
        failures=assignment.failures,
        worker=LOCAL_WORKER,
        recorder=recorder,
        parent_results=ParentResults(parents=dict(steps.children)),
        step_context=lambda recorder: StepContext(
            recorder=recorder,
            handler=handler,
            attempt=assignment.attempt,
            encode=outcomes.json,
            longest_sleep=outcomes.max_delay,
            local=steps,
        ),
    )
    # A context of its own: context variables of a handler reach no other task.
    return copy_context().run(_run_in_context, task, handler, assignment, outcomes)


def _run_in_context(task: CurrentTask, handler: Handler, assignment: Assignment, outcomes: Outcomes) -> EndedAttempt:
    current.set(task)
    hooked = False
    try:
        arguments = _arguments(handler, assignment.data)
        hooked = True
        hooks.run_before(task, _call_hook)
        value = handler.call(arguments)
        result = outcomes.result(_awaited(value) if hasattr(type(value), "__await__") else value)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # a handler may raise SystemExit or its own BaseException
        judgement = outcomes.judge(assignment, handler, error)
        if hooked:
            hooks.run_after(task, AttemptOutcome.after(error, *judgement), _call_hook)
        return outcomes.failed(assignment, error, {}, 0, judgement)
    hooks.run_after(task, COMPLETED, _call_hook)
    return outcomes.completed(assignment.number, {}, result, 0)


def _call_hook(hook: Hook, *arguments: object) -> None:
    value = hook.function(*arguments)
    if hook.is_async:
        hooks.adopt(_awaited(hooks.with_context(value)))


def _awaited(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """Returns the result of a coroutine; in a thread of its own if the caller runs in an event loop."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        asgiref = sys.modules.get("asgiref.sync")
        # With Django, calls by `sync_to_async` run in this thread, where a test has its transaction.
        return asyncio.run(coroutine) if asgiref is None else asgiref.async_to_sync(_await)(coroutine)
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(copy_context().run, asyncio.run, coroutine).result()


async def _await(coroutine: Coroutine[Any, Any, Any]) -> Any:
    return await coroutine


def _arguments(handler: Handler, data: bytes) -> object:
    try:
        return handler.read(data)
    except ValidationError as error:
        raise InvalidData(explain(error)) from error


def _attempt(number: int, due: datetime, outcome: EndedAttempt) -> Attempt:
    record = json.loads(outcome.record)
    return Attempt(
        number=number,
        worker=LOCAL_WORKER,
        started_at=due,
        ended_at=due,
        outcome=record["outcome"],
        error=Error(**record["error"]) if "error" in record else None,
        retry_delay_seconds=record.get("retry_delay"),
    )
