"""Runs handlers that are coroutine functions."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine
from typing import Any


class CoroutineRunner:
    """Runs one coroutine after another in an event loop of its own; `left` names what could not be ended."""

    def __init__(self, cancel_wait: float) -> None:
        """`cancel_wait` is how many seconds cancelled tasks of an ended coroutine may still run."""
        self.cancel_wait = cancel_wait
        self.left = ""
        self._loop: asyncio.AbstractEventLoop | None = None

    def run(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        """Returns the result of a coroutine; tasks that it leaves running are cancelled."""
        # Never the thread's current loop: a handler that closes or replaces that one must not break the next.
        if self._loop is None or self._loop.is_closed():
            self._loop = asyncio.new_event_loop()
        try:
            return self._loop.run_until_complete(coroutine)
        finally:
            if left := asyncio.all_tasks(self._loop):
                self._cancel(self._loop, left)

    def _cancel(self, loop: asyncio.AbstractEventLoop, left: set[asyncio.Task[Any]]) -> None:
        """Cancels tasks and waits a moment for them; the handler's own outcome counts in any case."""
        for each in left:
            each.cancel()
        waiter = loop.create_task(asyncio.wait(left, timeout=self.cancel_wait))
        with contextlib.suppress(BaseException):
            loop.run_until_complete(waiter)
        for each in left:
            if each.done() and not each.cancelled():
                each.exception()  # marks it as retrieved, so that Python logs no warning
        unended = asyncio.all_tasks(loop) - {waiter}
        self.left = ", ".join(sorted(getattr(each.get_coro(), "__qualname__", "?") for each in unended))
