"""Tasks of Django, and a handler beside them."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Any

from asgiref.sync import sync_to_async
from django.contrib.auth.models import User
from django.db import connection, transaction
from django.dispatch import receiver

from firmq import task as handler
from firmq.django import handler_options
from firmq.django.framework import task_finished, task_started

try:
    from django.tasks import TaskContext, task
except ImportError:
    from django_tasks import TaskContext, task  # type: ignore[assignment,no-redef]

log = logging.getLogger(__name__)
signals: list[str] = []


@receiver(task_started)
def on_start(sender: object, task_result: Any, **more: object) -> None:
    signals.append(f"started {task_result.id} {task_result.status}")


@receiver(task_finished)
def on_end(sender: object, task_result: Any, **more: object) -> None:
    signals.append(f"finished {task_result.id} {task_result.status}")


@receiver(task_finished)
def on_end_broken(sender: object, **more: object) -> None:
    raise RuntimeError("a broken receiver")


@task
def add(a: int, b: int = 1) -> int:
    return a + b


@task
async def add_async(a: int, b: int) -> int:
    await asyncio.sleep(0.01)
    return a + b


@task(takes_context=True)
def about(context: TaskContext[Any, Any]) -> dict[str, Any]:
    result = context.task_result
    return {"id": result.id, "attempt": context.attempt, "status": result.status, "workers": result.worker_ids}


@task(takes_context=True)
def fail_once(context: TaskContext[Any, Any]) -> str:
    if context.attempt == 1:
        raise Overloaded("not yet")
    return "done"


class Overloaded(Exception):
    """An error of the project."""


@task
def fail(message: str) -> None:
    raise Overloaded(message)


@task
async def fail_async() -> None:
    raise Overloaded("asynchronously")


@task
@handler_options(timeout=7, max_retries=0, threads=True)
def with_options() -> None:
    raise Overloaded("with options")


@task
def return_lambda() -> Any:
    return lambda: None


@task
def signals_seen() -> list[str]:
    return signals


@task
def count_users() -> int:
    return User.objects.count()


@task
async def count_users_async() -> int:
    return await User.objects.acount()


@task
def age_connection() -> None:
    """Leaves a connection behind that is past its age."""
    connection.ensure_connection()
    connection.close_at = time.monotonic() - 1


@task
async def age_connection_async() -> None:
    await sync_to_async(age_connection.func)()


@task
def connection_is_open() -> bool:
    return connection.connection is not None


@task
async def connection_is_open_async() -> bool:
    return bool(await sync_to_async(connection_is_open.func)())


@handler("count-users")
def count_users_handler() -> int:
    return User.objects.count()


def not_a_task() -> str:
    return "run"


@handler("count-in-thread", threads=True, max_retries=0)
def count_in_thread(seconds: float) -> int:
    """Keeps its connection for a while, as Django does."""
    count = User.objects.count()
    time.sleep(seconds)
    return count


@handler("count-in-coroutine", max_retries=0)
async def count_in_coroutine(seconds: float) -> int:
    """Has connections in the thread of `sync_to_async`, and in others."""
    count = await asyncio.to_thread(User.objects.count)
    await sync_to_async(User.objects.count, thread_sensitive=False)()
    async for _ in User.objects.aiterator(chunk_size=1):
        await asyncio.sleep(seconds)
    return count + await User.objects.acount()


_blocks: list[Any] = []


@handler("keep-transaction", max_retries=0)
def keep_transaction() -> None:
    """Leaves a transaction open that something still refers to, in the main thread."""
    _blocks.append(transaction.atomic())
    _blocks[-1].__enter__()
    User.objects.create(username="lost")


@handler("create-user", max_retries=0)
def create_user(name: str) -> int:
    return int(User.objects.create(username=name).pk)


@handler("leave-transaction", threads=True, max_retries=0)
def leave_transaction() -> int:
    """Leaves a transaction open, as a generator that is not exhausted does."""
    transaction.atomic().__enter__()
    return User.objects.count()
