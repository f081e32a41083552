"""Runs the script calls of coroutines: those that wait at the same time share a round trip.

A thread of its own does the sending, on the connections that all parts use: with TLS, sentinels and their time-outs.
"""

from __future__ import annotations

import asyncio
import threading
from collections import defaultdict
from collections.abc import Callable, Sequence
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

if TYPE_CHECKING:
    from taskqueue.shared.redis.scripts import Reply, ScriptCall, Steps

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

    async def run(self, steps: Steps[T]) -> T:
        """Runs the script calls of a submission and returns its outcome. Raises what the driver raises."""
        loop, reply = asyncio.get_running_loop(), None
        while True:
            try:
                call = steps.send(reply)
            except StopIteration as end:
                outcome: T = end.value
                return outcome
            future = loop.create_future()
            self._start()
            self._waiting.put((call, future))
            reply = await future

    def close(self) -> None:
        """Runs the calls that wait, then stops."""
        if self._thread is not None:
            self._waiting.put(None)
            self._thread.join()
            self._thread = None

    def _start(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._serve, name="submissions", daemon=True)
            self._thread.start()

    def _serve(self) -> None:
        while first := self._waiting.get():
            batch = [first]
            stopped = False
            while len(batch) < _MOST and not stopped:
                try:
                    following = self._waiting.get_nowait()
                except Empty:
                    break
                if following is None:
                    stopped = True
                else:
                    batch.append(following)
            self._run(batch)
            if stopped:
                return

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
            if not loop.is_closed():
                loop.call_soon_threadsafe(_settle, settled)


def _settle(settled: Sequence[tuple[asyncio.Future[Any], Any]]) -> None:
    for future, outcome in settled:
        if future.done():  # its coroutine was cancelled
            continue
        if isinstance(outcome, Exception):
            future.set_exception(outcome)
        else:
            future.set_result(outcome)
