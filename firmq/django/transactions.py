"""Submission at the end of a database transaction."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, ParamSpec

from django.db import connection, transaction

if TYPE_CHECKING:
    from firmq.django.framework import Task
    from firmq.worker.handlers.task_function import Submission

P = ParamSpec("P")
log = logging.getLogger(__name__)


def submit_on_commit(task: Submission[P] | Task[P, Any], /, *args: P.args, **kwargs: P.kwargs) -> None:
    """Submits a task when the current transaction of the default database commits; at once when there is none.

    `task` is a handler, the result of its `options`, or a task of Django. Arguments are checked now, and raise as in
    `submit`. Nothing is submitted when the transaction is rolled back. An error of the submission after a commit is
    logged and not raised, because the transaction is committed: the task is lost then. To have it raised, or for
    another database, pass `task.prepare(...)` to `transaction.on_commit`. Without a transaction it is raised.
    """
    given: Any = task
    robust = connection.in_atomic_block
    if hasattr(given, "get_backend"):
        if hasattr(backend := given.get_backend(), "new_task"):  # other backends check when they enqueue
            backend.new_task(given, *args, **kwargs)
        submit: Any = partial(given.enqueue, *args, **kwargs)
    else:
        submit = given.prepare(*args, **kwargs)
    transaction.on_commit(partial(_logged, submit) if robust else submit)


def _logged(submit: Callable[[], object]) -> None:
    # Django's own `robust` logs through a logger that only sends mail in production.
    try:
        submit()
    except Exception:
        log.exception("a task was not submitted after the commit, and is lost")
