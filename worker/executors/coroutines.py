"""Runs handlers that are coroutine functions."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine
from typing import Any

from firmq.worker.executors.handlers_loop import Begun, HandlersLoop, begun, new_loop

_THREADS = 32
"""Threads of `asyncio.to_thread`: the most that Python gives a program."""


class CoroutineRunner:
    """Runs one coroutine after another in an event loop of its own; `left` names the tasks that could not be ended."""

    def __init__(self, cancel_wait: float) -> None:
        """`cancel_wait` is how many seconds cancelled tasks of an ended coroutine may still run."""
        self.cancel_wait = cancel_wait
        self.left = ""
        self.calls_left = False
        self._loop: HandlersLoop | None = None
        self._kept: set[asyncio.Task[Any]] = set()

    def run(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        """Returns the result of a coroutine; tasks that it leaves running are cancelled."""
        loop = self._current()
        began = Begun()
        token = begun.set(began)
        try:
            return loop.run_until_complete(coroutine)
        finally:
            begun.reset(token)
            if left := asyncio.all_tasks(loop) - self._kept:
                self._cancel(loop, left)
            self.calls_left |= bool(began.calls)
            self.left = loop.leave_calls(began) or self.left
            loop.restore_settings()

    def run_and_keep(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        """Returns the result of a coroutine; tasks that it leaves running, such as a pool's, are kept."""
        loop = self._current()
        try:
            return loop.run_until_complete(coroutine)
        finally:
            self._kept |= asyncio.all_tasks(loop)
            loop.keep_settings()

    def _current(self) -> HandlersLoop:
        # Never the thread's current loop: a handler that closes or replaces that one must not break the next.
        if self._loop is None or self._loop.is_closed():
            self._loop = new_loop(_THREADS)
        return self._loop

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
        unended = asyncio.all_tasks(loop) - {waiter} - self._kept
        if unended:
            names = ", ".join(sorted(getattr(each.get_coro(), "__qualname__", "?") for each in unended))
            self.left = f"coroutines that ignore being cancelled ({names})"
