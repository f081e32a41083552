"""A batch's tools from asyncio; firmq.shared.client.senders is the same for threads."""

from __future__ import annotations

import asyncio
from asyncio import Condition, Future
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, TypeVar

__all__ = ["Condition", "Future", "Senders", "result_of", "wait_for_change"]

T = TypeVar("T")


async def result_of(future: Future[T]) -> T:
    return await future


async def wait_for_change(condition: Condition, seconds: float | None = None) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await condition.wait()


class Senders:
    """Tasks of the event loop that send the pages of a batch."""

    def __init__(self, run: Callable[[], Coroutine[Any, Any, None]], number: int) -> None:
        self._run = run
        self._number = number
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        self._tasks = [asyncio.create_task(self._run(), name="batch sender") for _ in range(self._number)]

    async def leave(self) -> None:
        """Cancels those that have not ended: what they were sending may be stored."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
