"""Each task of Django begins and ends with a look at the database connection of its thread."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from asgiref.sync import sync_to_async

from taskqueue import LocalClient, use_client


@pytest.fixture
def tasks(django_project: Path) -> Iterator[Any]:
    """The tasks of the project, which run when they are enqueued."""
    from tests.support.django_project import tasks

    before = use_client(LocalClient(["taskqueue.django.handlers"]))
    yield tasks
    use_client(*before)


def here(function: Callable[[], Any]) -> Any:
    """Runs a function in this thread, as plain tasks run."""
    return function()


def there(function: Callable[[], Any]) -> Any:
    """Runs a function in the database thread of coroutines."""

    async def run() -> Any:
        return await sync_to_async(function)()

    return asyncio.run(run())


def age() -> None:
    """Opens the thread's connection, and makes it older than it may get."""
    from django.db import connection

    connection.ensure_connection()
    connection.close_at = time.monotonic() - 1


def is_open() -> bool:
    from django.db import connection

    return connection.connection is not None


KINDS = pytest.mark.parametrize(("kind", "run"), [("", here), ("_async", there)], ids=["plain", "coroutine"])


@KINDS
def test_a_connection_that_aged_since_the_last_task_is_closed_before_the_next(tasks: Any, kind: str, run: Any) -> None:
    run(age)
    result = getattr(tasks, f"connection_is_open{kind}").enqueue()
    result.refresh()
    assert result.return_value is False


@KINDS
def test_a_connection_that_aged_during_a_task_is_closed_after_it(tasks: Any, kind: str, run: Any) -> None:
    getattr(tasks, f"age_connection{kind}").enqueue()
    assert not run(is_open)


@KINDS
def test_a_connection_that_is_well_is_kept(tasks: Any, kind: str, run: Any) -> None:
    getattr(tasks, f"count_users{kind}").enqueue()
    assert run(is_open)
