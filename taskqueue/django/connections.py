"""Checks database connections before and after each attempt, in the thread where its handler uses them.

Coroutines use them in the one thread in which `sync_to_async` runs Django's code.
"""

from __future__ import annotations

from asgiref.sync import sync_to_async
from django.db import close_old_connections, reset_queries

from taskqueue import AttemptOutcome, CurrentTask, after_task, before_task
from taskqueue.worker.handlers.registry import REGISTRY


def check_connections() -> None:
    """Closes this thread's connections that are broken or past their CONN_MAX_AGE, as Django does between requests."""
    reset_queries()
    close_old_connections()


@before_task
def check_before(task: CurrentTask) -> None:
    """Checks the connections of a plain function."""
    if not _is_async(task):
        check_connections()


@before_task
async def check_before_coroutine(task: CurrentTask) -> None:
    """Checks the connections of coroutines."""
    if _is_async(task):
        await sync_to_async(check_connections)()


@after_task
def check_after(task: CurrentTask, outcome: AttemptOutcome) -> None:
    """Checks the connections of a plain function."""
    check_before(task)


@after_task
async def check_after_coroutine(task: CurrentTask, outcome: AttemptOutcome) -> None:
    """Checks the connections of coroutines."""
    await check_before_coroutine(task)


def _is_async(task: CurrentTask) -> bool:
    return REGISTRY.handlers[task.type].is_async
