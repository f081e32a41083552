"""What the client needs of asyncio; taskqueue.shared.client.concurrency is the same for threads."""

from __future__ import annotations

import asyncio
import time
from asyncio import Condition, Future
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Mapping
from contextlib import suppress
from typing import Any, TypeVar

__all__ = ["Condition", "Future", "Senders", "Sleep", "Tasks", "each_of", "result_of", "sleep", "wait_for_change"]

T = TypeVar("T")
Sleep = Callable[[float], Awaitable[object]]
sleep = asyncio.sleep
Tasks = Iterable[Mapping[str, Any]] | AsyncIterable[Mapping[str, Any]]
TURN = 0.005
"""Seconds for which a plain iterable is read before the event loop gets a turn."""


async def each_of(items: Iterable[T] | AsyncIterable[T]) -> AsyncIterator[T]:
    """Yields the items of any iterable; other tasks of the event loop go on meanwhile."""
    if isinstance(items, AsyncIterable):
        async for item in items:
            yield item
        return
    end = time.monotonic() + TURN
    for item in items:
        yield item
        if time.monotonic() >= end:
            await asyncio.sleep(0)
            end = time.monotonic() + TURN


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
