"""Runs the script calls of coroutines: simultaneous calls share a round trip.

A thread of its own does the sending, on the connections that all parts use: with TLS, sentinels and their time-outs.
"""

from __future__ import annotations

import asyncio
import threading
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

if TYPE_CHECKING:
    from firmq.shared.redis.scripts import Reply, ScriptCall, Steps

T = TypeVar("T")
_MOST = 250
"""Calls in one round trip: some 10 ms of Redis, between which other clients have their turn."""
_Waiting: TypeAlias = "tuple[ScriptCall, asyncio.Future[Any]]"


class Pipeline:
    """Runs script calls, in order, many to a round trip."""

    def __init__(self, call_many: Callable[[Sequence[ScriptCall]], list[Reply | Exception]]) -> None:
        self._call_many = call_many
        self._waiting: SimpleQueue[_Waiting | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._running = 0
        self._closing = False

    async def run(self, steps: Steps[T]) -> T:
        """Runs the script calls of a submission and returns its outcome. Raises the driver's errors."""
        loop, reply = asyncio.get_running_loop(), None
        self._running += 1
        try:
            while True:
                try:
                    call = steps.send(reply)
                except StopIteration as end:
                    outcome: T = end.value
                    return outcome
                future = loop.create_future()
                self._start()
                self._waiting.put((call, future))
                try:
                    reply = await future
                except Exception as error:
                    steps.throw(error)  # the span of the submission records it
                    raise
        finally:
            self._running -= 1
            if self._closing:
                self._waiting.put(None)

    def close(self) -> None:
        """Waits for the submissions that have begun, whose next calls may depend on a reply, then stops."""
        if self._thread is not None:
            self._closing = True
            self._waiting.put(None)
            self._thread.join()
            self._thread = None
            self._closing = False

    def _start(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._serve, name="submissions", daemon=True)
            self._thread.start()

    def _serve(self) -> None:
        while not self._closing or self._running:
            if batch := self._batch():
                self._run(batch)

    def _batch(self) -> list[_Waiting]:
        """Waits for a call; returns it with those queued after it, or none when it only had to wake up."""
        batch: list[_Waiting] = []
        waiting = self._waiting.get()
        with suppress(Empty):
            while waiting is not None:
                batch.append(waiting)
                waiting = self._waiting.get_nowait() if len(batch) < _MOST else None
        return batch

    def _run(self, batch: Sequence[_Waiting]) -> None:
        outcomes: Sequence[Reply | Exception]
        try:
            outcomes = self._call_many([call for call, _ in batch])
        except Exception as error:
            outcomes = [error] * len(batch)
        by_loop: defaultdict[asyncio.AbstractEventLoop, list[tuple[asyncio.Future[Any], Any]]] = defaultdict(list)
        for (_, future), outcome in zip(batch, outcomes, strict=True):
            by_loop[future.get_loop()].append((future, outcome))
        for loop, settled in by_loop.items():
            with suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(_settle, settled)


def _settle(settled: Sequence[tuple[asyncio.Future[Any], Any]]) -> None:
    for future, outcome in settled:
        if future.done():  # its coroutine was cancelled
            continue
        if isinstance(outcome, Exception):
            future.set_exception(outcome)
        else:
            future.set_result(outcome)
