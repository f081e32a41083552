"""The outbox for Django: tasks are submitted by rows in the caller's own transaction.

INSTALLED_APPS = [..., "firmq.django.outbox"]

from firmq.django import outbox

with transaction.atomic():
    order.save()
    outbox.add(send_invoice, order=order.pk)

`manage.py firmq_outbox` runs the relay, which sends each committed row; it becomes exactly one task.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ParamSpec, overload

if TYPE_CHECKING:
    from firmq.django.framework import Task
    from firmq.worker.handlers.task_function import Submission

__all__ = ["add"]

P = ParamSpec("P")


@overload
def add(task: Submission[P] | Task[P, Any], /, *args: P.args, **kwargs: P.kwargs) -> str: ...


@overload
def add(task: Mapping[str, Any], /) -> str: ...


def add(task: Any, /, *args: Any, **kwargs: Any) -> str:
    """Writes a task to the outbox in the current transaction; returns the id that the task will have.

    `task` is a handler or a task of Django with its arguments, the result of its `options`, or a `new_task`. The
    database is the one that the routers choose for writing an OutboxRow. Raises TypeError or ValueError for a value
    that is not a task, and the errors of a handler for arguments that do not fit.
    """
    from firmq.django.outbox.table import write

    return write(task, *args, **kwargs)
