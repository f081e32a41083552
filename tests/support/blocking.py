"""The client for asyncio behind the methods of the one for threads, so that one test is for both."""

from __future__ import annotations

import asyncio
import inspect
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any

from firmq.shared.client import AsyncClient


class Blocking:
    """An object of the client for asyncio; what it would await is waited for, in a loop of another thread."""

    def __init__(self, target: Any, loop: asyncio.AbstractEventLoop) -> None:
        self._target = target
        self._loop = loop

    def __getattr__(self, name: str) -> Any:
        return self._blocking(getattr(self._target, name))

    def __iter__(self) -> Blocking:
        return Blocking(aiter(self._target), self._loop)

    def __next__(self) -> Any:
        try:
            return self._wait(anext(self._target))
        except StopAsyncIteration:
            raise StopIteration from None

    def close(self) -> None:
        """Closes an iterator."""
        self._wait(self._target.aclose())

    def _blocking(self, value: Any) -> Any:
        if inspect.ismethod(value):
            return lambda *arguments, **more: self._blocking(value(*map(_asynchronous, arguments), **more))
        if inspect.isawaitable(value):
            return self._blocking(self._wait(value))
        if isinstance(value, AsyncIterator) or type(value).__module__.startswith("firmq.shared.client.aio"):
            return Blocking(value, self._loop)
        return value

    def _wait(self, value: Awaitable[Any]) -> Any:
        async def waiting() -> Any:
            return await value

        return asyncio.run_coroutine_threadsafe(waiting(), self._loop).result()


class BlockingClient(Blocking):
    """A client; at its end nothing of it may be left in the loop."""

    def __init__(self, *arguments: Any, sleep: Callable[[float], object] | None = None, **settings: Any) -> None:
        if sleep:

            async def pause(seconds: float) -> None:
                sleep(seconds)

            settings["sleep"] = pause
        super().__init__(AsyncClient(*arguments, **settings), asyncio.new_event_loop())
        self._thread = threading.Thread(target=self._loop.run_forever)

    def __enter__(self) -> BlockingClient:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._wait(self._target.close())
        left = self._wait(_left())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        assert not left


async def _left() -> set[asyncio.Task[Any]]:
    """The tasks that are still there after a moment."""
    end = time.monotonic() + 30
    while (left := asyncio.all_tasks() - {asyncio.current_task()}) and time.monotonic() < end:
        await asyncio.sleep(0.01)
    return left


def _asynchronous(value: Any) -> Any:
    """Makes an asynchronous iterator of a plain one, whose items are made in a thread: they may wait for the client."""
    return _items(value) if isinstance(value, Iterator) else value


async def _items(items: Iterator[Any]) -> AsyncIterator[Any]:
    end = object()
    while (item := await asyncio.to_thread(next, items, end)) is not end:
        yield item
