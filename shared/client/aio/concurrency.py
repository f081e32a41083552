"""The client's tools from asyncio; firmq.shared.client.concurrency is the same for threads."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Iterable, Mapping
from typing import Any, TypeVar

__all__ = ["Sleep", "Tasks", "each_of", "sleep"]

T = TypeVar("T")
Sleep = Callable[[float], Awaitable[object]]
sleep = asyncio.sleep
Tasks = Iterable[Mapping[str, Any]] | AsyncIterable[Mapping[str, Any]]
TURN = 0.005
"""Seconds for which a plain iterable is read before the event loop gets a turn."""


async def each_of(items: Iterable[T] | AsyncIterable[T]) -> AsyncIterator[T]:
    """Yields the items of any iterable; other tasks of the event loop run meanwhile."""
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
