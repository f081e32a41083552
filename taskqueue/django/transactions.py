"""Submission at the end of a database transaction."""

from __future__ import annotations

from typing import TYPE_CHECKING, ParamSpec

from django.db import transaction

if TYPE_CHECKING:
    from taskqueue.worker.handlers.task_function import Submission

P = ParamSpec("P")


def submit_on_commit(task: Submission[P], /, *args: P.args, **kwargs: P.kwargs) -> None:
    """Submits a task when the current transaction of the default database commits; at once when there is none.

    `task` is a handler, or what its `options` returns. Arguments are checked now, and raise as in `submit`. Nothing is
    submitted when the transaction is rolled back. For another database pass `task.prepare(...)` to
    `transaction.on_commit`.
    """
    transaction.on_commit(task.prepare(*args, **kwargs))
