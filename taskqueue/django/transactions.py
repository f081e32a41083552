"""Submission at the end of a database transaction."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ParamSpec

from django.db import transaction

if TYPE_CHECKING:
    from taskqueue.django.framework import Task
    from taskqueue.worker.handlers.task_function import Submission

P = ParamSpec("P")


def submit_on_commit(task: Submission[P] | Task[P, Any], /, *args: P.args, **kwargs: P.kwargs) -> None:
    """Submits a task when the current transaction of the default database commits; at once when there is none.

    `task` is a handler, what its `options` returns, or a task of Django. Arguments are checked now, and raise as in
    `submit`. Nothing is submitted when the transaction is rolled back. An error of the submission itself is logged and
    not raised, because the transaction is committed: the task is lost then. To have it raised, or for another database,
    pass `task.prepare(...)` to `transaction.on_commit`.
    """
    given: Any = task
    if hasattr(given, "get_backend"):
        if hasattr(backend := given.get_backend(), "new_task"):  # those of others check when they enqueue
            backend.new_task(given, *args, **kwargs)
        transaction.on_commit(lambda: given.enqueue(*args, **kwargs), robust=True)
    else:
        transaction.on_commit(given.prepare(*args, **kwargs), robust=True)
