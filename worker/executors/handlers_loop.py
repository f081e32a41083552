"""The event loop of handlers. State that attempts share on a loop belongs to each of them, or is undone after each."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

CALLS = "task thread of a coroutine"
"""The names of the threads of `asyncio.to_thread` begin with this."""
CALLS_LEFT = "calls of asyncio.to_thread that still run"
_MOST_LEFT = 32
"""Such calls above which the executor is replaced."""
THREADS_LEFT = "calls that still run in all threads of a ThreadPoolExecutor, such as sync_to_async's"


class Begun:
    """Calls that one attempt has begun on the loop, and its own settings there."""

    __slots__ = ("calls", "calls_elsewhere", "executor", "factory", "tasks")

    def __init__(self) -> None:
        self.tasks: set[asyncio.Task[Any]] = set()
        self.calls: set[Future[Any]] = set()
        """Calls in threads; cancelling the coroutine that waits for one does not end it."""
        self.calls_elsewhere: dict[Future[Any], tuple[Executor, asyncio.Future[Any]]] = {}
        """Calls in executors that may outlive the attempt, with the futures that wait for them."""
        self.executor: Executor | None = None
        self.factory: Callable[..., Any] | None = None


begun: ContextVar[Begun | None] = ContextVar("begun", default=None)


class HandlersLoop(asyncio.AbstractEventLoop if TYPE_CHECKING else object):  # type: ignore[misc]
    """A mixin for the class of a loop."""

    slow_callback_duration: float

    def share(self, threads: int) -> None:
        """Prepares it for attempts that use at most so many threads at a time."""
        self._left = set[Future[Any]]()
        self._left_elsewhere: dict[Future[Any], Executor] = {}
        self.set_default_executor(ThreadPoolExecutor(threads, CALLS))
        super().set_task_factory(_new_task)
        self.keep_settings()

    def keep_settings(self) -> None:
        """Makes the settings of now those that `restore_settings` restores."""
        self._settings = self.get_debug(), self.get_exception_handler(), self.slow_callback_duration

    def restore_settings(self) -> None:
        """Undoes the settings of an attempt."""
        if (self.get_debug(), self.get_exception_handler(), self.slow_callback_duration) != self._settings:
            debug, handler, self.slow_callback_duration = self._settings
            self.set_debug(debug)
            self.set_exception_handler(handler)

    def leave_calls(self, own: Begun, interrupted: bool = False) -> str:
        """Allows one more thread for each call that an ended attempt has left running, which cannot be ended.

        Returns why this process must be replaced: too many are left, or they occupy another executor.
        """
        if own.calls:
            self._left = {each for each in [*self._left, *own.calls] if not each.done()}
            if isinstance(self._calls, ThreadPoolExecutor):
                self._calls._max_workers = self._threads + len(self._left)  # noqa: SLF001  # asked for at each call
                # Python 3.11 counts threads as idle that took a queued call, and a call may wait for a hung one.
                while self._calls._idle_semaphore.acquire(timeout=0):  # noqa: SLF001
                    pass
                self._calls._adjust_thread_count()  # noqa: SLF001
            if own.calls and len(self._left) > _MOST_LEFT:
                return CALLS_LEFT
        for call, (executor, waiter) in [*own.calls_elsewhere.items()]:
            if call.running() and (interrupted or waiter.cancelled()):  # others are meant to outlive the attempt
                self._left_elsewhere[call] = executor
                running = Counter(each for left, each in self._left_elsewhere.items() if not left.done())
                if running[executor] >= getattr(executor, "_max_workers", 1):
                    return THREADS_LEFT
        return ""

    def run_in_executor(self, executor: Executor | None, func: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:
        own = begun.get()
        executor = executor or (own.executor if own is not None else None) or self._calls
        call = executor.submit(func, *args)
        if own is not None and executor is self._calls:
            own.calls.add(call)
            call.add_done_callback(own.calls.discard)  # before the callback that lets the attempt end
        waiter = asyncio.wrap_future(call, loop=self)
        if own is not None and executor is not self._calls and executor is not own.executor:
            own.calls_elsewhere[call] = executor, waiter
            call.add_done_callback(lambda done: own.calls_elsewhere.pop(done, None))
        return waiter

    def set_default_executor(self, executor: Executor) -> None:
        if (own := begun.get()) is not None:
            own.executor = executor
        else:
            self._calls, self._threads = executor, getattr(executor, "_max_workers", 0)

    def set_task_factory(self, factory: Callable[..., Any] | None) -> None:
        if (own := begun.get()) is not None:
            own.factory = factory
        else:
            super().set_task_factory(factory or _new_task)

    def get_task_factory(self) -> Callable[..., Any] | None:
        own = begun.get()
        return own.factory if own is not None else super().get_task_factory()

    async def shutdown_default_executor(self, timeout: float | None = None) -> None:  # noqa: ASYNC109  # as in asyncio
        """Waits for the calls of this attempt; the threads stay for the others."""
        if (own := begun.get()) is not None and own.calls:
            await asyncio.wait([asyncio.wrap_future(call) for call in list(own.calls)], timeout=timeout)

    async def shutdown_asyncgens(self) -> None:
        """Does nothing: the generators may belong to other attempts."""


def new_loop(threads: int) -> HandlersLoop:
    """Returns a loop, uvloop's where it is installed; `asyncio.to_thread` has so many threads."""
    try:
        import uvloop  # type: ignore[import-not-found,unused-ignore]  # optional

        base = uvloop.Loop
    except ImportError:
        base = asyncio.SelectorEventLoop
    loop: HandlersLoop = type("HandlersLoop", (HandlersLoop, base), {})()
    loop.share(threads)
    return loop


def _new_task(loop: asyncio.AbstractEventLoop, coroutine: Coroutine[Any, Any, Any], **options: Any) -> Any:
    """Makes a task, and notes it with the attempt whose handler makes it."""
    own = begun.get()
    if own is None:
        return asyncio.Task(coroutine, loop=loop, **options)
    task = own.factory(loop, coroutine, **options) if own.factory else asyncio.Task(coroutine, loop=loop, **options)
    if not task.done():  # a task of an eager factory may be
        own.tasks.add(task)
        task.add_done_callback(own.tasks.discard)
    return task
