"""Runs a task of Django in an executor, with Django's signals.

Receivers of signals cannot fail an attempt: Django logs their errors.
"""

from __future__ import annotations

import asyncio
import traceback
from typing import Any

from django.utils import timezone

from firmq import current_task
from firmq.django.call import Call
from firmq.django.framework import (
    Task,
    TaskContext,
    TaskError,
    TaskResult,
    TaskResultStatus,
    normalize_json,
    task_finished,
    task_started,
)
from firmq.django.results import ended, new_result


def run(task: Task[..., Any], call: Call) -> Any:
    """Runs a plain function. Returns its value in JSON form; raises TypeError if it has none, and its errors."""
    result = _started(task, call)
    sender = type(result.task.get_backend())
    task_started.send_robust(sender, task_result=result)
    try:
        value = normalize_json(result.task.call(*_context(result), *result.args, **result.kwargs))
    except KeyboardInterrupt:  # someone stops this program
        raise
    except BaseException as error:  # also SystemExit, and the time limit
        ended(result, error=_error(error))
        task_finished.send_robust(sender, task_result=result)
        raise
    ended(result, value)
    task_finished.send_robust(sender, task_result=result)
    return value


async def run_async(task: Task[..., Any], call: Call) -> Any:
    """Runs a coroutine function as `run` runs a plain one."""
    result = _started(task, call)
    sender = type(result.task.get_backend())
    await task_started.asend_robust(sender, task_result=result)
    try:
        value = normalize_json(await result.task.acall(*_context(result), *result.args, **result.kwargs))
    except asyncio.CancelledError:  # the worker decides the outcome
        raise
    except BaseException as error:
        ended(result, error=_error(error))
        await task_finished.asend_robust(sender, task_result=result)
        raise
    ended(result, value)
    await task_finished.asend_robust(sender, task_result=result)
    return value


def _started(task: Task[..., Any], call: Call) -> TaskResult[..., Any]:
    """Returns the result of the attempt that runs now. Raises InvalidTask."""
    attempt = current_task()
    # Only the number of earlier workers is known here; `refresh` reads their names.
    workers = [attempt.worker] * attempt.attempt
    return new_result(call, call.with_options(task), attempt.id, TaskResultStatus.RUNNING, workers, timezone.now())


def _context(result: TaskResult[..., Any]) -> tuple[Any, ...]:
    return (TaskContext(task_result=result),) if result.task.takes_context else ()


def _error(error: BaseException) -> TaskError:
    kind = type(error)
    return TaskError(
        exception_class_path=f"{kind.__module__}.{kind.__qualname__}",
        traceback="".join(traceback.format_exception(error)),
    )
