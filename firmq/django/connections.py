"""Closes database connections around each attempt, in the thread where its handler uses them.

The main thread of an executor keeps its connections for CONN_MAX_AGE, as a server keeps them between requests. Other
threads close theirs when no attempt uses them: there may be a hundred, and connections of idle threads are missing
elsewhere. Coroutines share the one thread in which `sync_to_async` runs Django's code. In local mode the connections
are the caller's, which may be in a transaction.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from asgiref.sync import sync_to_async
from django.db import connections, reset_queries

from firmq import AttemptOutcome, CurrentTask, ExecutorContext, after_task, before_task, executor_started
from firmq.worker.handlers.context import LOCAL_WORKER
from firmq.worker.handlers.registry import REGISTRY

_coroutines: set[str] = set()
"""Ids of the tasks whose coroutines run now."""


def check_connections(*, shared: bool = False) -> None:
    """Closes this thread's connections that are broken, or past their CONN_MAX_AGE unless they are `shared`."""
    reset_queries()
    for connection in connections.all(initialized_only=True):
        if connection.in_atomic_block:
            if not shared:  # the attempt that opened it has ended: what comes next must not be lost with it
                connection.close()
                del connections[connection.alias]
            continue
        close_at = connection.close_at
        if shared:  # another coroutine may be between two chunks of a query
            connection.close_at = None
        connection.close_if_unusable_or_obsolete()
        if connection.connection is not None:
            connection.close_at = close_at


def close_connections() -> None:
    """Closes all connections of this thread."""
    for connection in connections.all(initialized_only=True):
        connection.close()
        if connection.in_atomic_block:  # of a generator that was left, for example: Django would not reconnect
            del connections[connection.alias]


def then_close(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Calls a function, and closes the connections that it used in this thread."""
    try:
        return function(*args, **kwargs)
    finally:
        close_connections()


class ClosingThreads(ThreadPoolExecutor):
    """The threads of `asyncio.to_thread`: each call may be the last one that its thread gets."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        return super().submit(then_close, fn, *args, **kwargs)


@executor_started
async def use_closing_threads(executor: ExecutorContext) -> None:
    """Gives the event loop its threads."""
    asyncio.get_running_loop().set_default_executor(ClosingThreads(thread_name_prefix="asyncio"))


@before_task
def check_before(task: CurrentTask) -> None:
    """Checks the connections of a plain function."""
    if not _is_async(task) and not _is_local(task):
        check_connections()


@before_task
async def check_before_coroutine(task: CurrentTask) -> None:
    """Checks the connections of coroutines."""
    if _is_async(task) and not _is_local(task):
        shared = bool(_coroutines)
        _coroutines.add(task.id)
        await sync_to_async(check_connections)(shared=shared)


@after_task
def check_after(task: CurrentTask, outcome: AttemptOutcome) -> None:
    """Closes the connections of a plain function in a thread, and checks them in the main thread."""
    if threading.current_thread() is threading.main_thread():
        check_before(task)
    elif not _is_async(task) and not _is_local(task):
        close_connections()


@after_task
async def check_after_coroutine(task: CurrentTask, outcome: AttemptOutcome) -> None:
    """Closes the connections of coroutines after the last one that runs."""
    if task.id in _coroutines:
        _coroutines.discard(task.id)
        await (sync_to_async(check_connections)(shared=True) if _coroutines else sync_to_async(close_connections)())


def _is_async(task: CurrentTask) -> bool:
    return REGISTRY.handlers[task.type].is_async


def _is_local(task: CurrentTask) -> bool:
    return task.worker == LOCAL_WORKER
