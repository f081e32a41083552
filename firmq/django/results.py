"""Converts tasks of Firmq to results of Django."""

from __future__ import annotations

import builtins
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from django.conf import settings
from django.utils import timezone
from pydantic import TypeAdapter, ValidationError

from firmq import Error, TaskDetail, TaskState
from firmq.django.call import Call, find_task
from firmq.django.framework import Task, TaskError, TaskResult, TaskResultDoesNotExist, TaskResultStatus

CALL = TypeAdapter(Call)
STATUSES = {
    TaskState.RUNNING: TaskResultStatus.RUNNING,
    TaskState.COMPLETED: TaskResultStatus.SUCCESSFUL,
    TaskState.FAILED: TaskResultStatus.FAILED,
    TaskState.CANCELLED: TaskResultStatus.FAILED,
    TaskState.EXPIRED: TaskResultStatus.FAILED,
}
"""All other states are READY: the task waits for its first attempt, or for the next one."""
_ENDED_OTHERWISE = "firmq.TaskFailed"
"""The exception class of a task that no exception ended: its executor crashed, or it never started."""


def new_result(
    call: Call,
    task: Task[..., Any],
    task_id: str,
    status: TaskResultStatus = TaskResultStatus.READY,
    worker_ids: Sequence[str] = (),
    started_at: datetime | None = None,
) -> TaskResult[..., Any]:
    """Returns the result of a task that has not ended."""
    return TaskResult(
        task=task,
        id=task_id,
        status=status,
        enqueued_at=_local(call.enqueued_at),
        started_at=_local(started_at),
        finished_at=None,
        last_attempted_at=_local(started_at),
        args=call.args,
        kwargs=call.kwargs,
        backend=call.backend,
        errors=[],
        worker_ids=list(worker_ids),
    )


def result_of(found: TaskDetail) -> TaskResult[..., Any]:
    """Returns the result of a stored task. Raises TaskResultDoesNotExist, and InvalidTask if its function is gone."""
    if not isinstance(found.data, dict) or "enqueued_at" not in found.data:  # of another handler
        raise TaskResultDoesNotExist(found.task_id)
    try:
        call = CALL.validate_python(found.data)
    except ValidationError as error:
        raise TaskResultDoesNotExist(found.task_id) from error
    status = STATUSES.get(found.status, TaskResultStatus.READY)
    task, workers = call.with_options(find_task(found.type)), [made.worker or "" for made in found.attempts]
    result = new_result(call, task, found.task_id, status, workers)
    begun = [made.started_at for made in found.attempts if made.started_at]
    if begun:
        _set(result, started_at=_local(begun[0]), last_attempted_at=_local(begun[-1]))
    errors = [_error(made.error) for made in found.attempts if made.error]
    if result.is_finished:
        if status is TaskResultStatus.FAILED and not errors:
            errors = [_error(found.error or Error(type="", message=found.cancel_reason or found.status))]
        _set(result, finished_at=_local(found.ended_at), _return_value=found.result)
    _set(result, errors=errors)
    return result


def ended(result: TaskResult[..., Any], value: object = None, error: TaskError | None = None) -> None:
    """Records in a result how its attempt ended, now."""
    if error is None:
        _set(result, status=TaskResultStatus.SUCCESSFUL, _return_value=value)
    else:
        _set(result, status=TaskResultStatus.FAILED, errors=[*result.errors, error])
    _set(result, finished_at=timezone.now())


def _set(result: TaskResult[..., Any], **values: Any) -> None:
    """Sets attributes of a result, which is frozen for its users."""
    for name, value in values.items():
        object.__setattr__(result, name, value)


def _local(moment: datetime | None) -> datetime | None:
    """Returns a moment as Django's settings require it."""
    if moment is None or settings.USE_TZ:
        return moment
    return timezone.make_naive(moment)


def _error(error: Error) -> TaskError:
    text = error.traceback or ""
    line = ": ".join(filter(None, (error.type, error.message)))
    return TaskError(exception_class_path=_class_path(error, text), traceback=text or line)


def _class_path(error: Error, traceback: str) -> str:
    """Returns the path of an exception class; only the traceback names its module, before the class and the message."""
    for end in (f"{error.type}: {error.message}", f"{error.type}\n"):
        before, found, _ = traceback.rpartition(end)
        if found and (module := before.rpartition("\n")[2].removesuffix(".")):
            return f"{module}.{error.type}"
        if found:
            break
    return f"builtins.{error.type}" if hasattr(builtins, error.type) else _ENDED_OTHERWISE
