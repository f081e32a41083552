"""What the client needs of threads; taskqueue.shared.client.aio.concurrency is the same for asyncio."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from threading import Condition
from typing import Any

__all__ = ["Condition", "Future", "Senders", "Sleep", "Tasks", "each_of", "result_of", "sleep", "wait_for_change"]

Sleep = Callable[[float], object]
sleep = time.sleep
Tasks = Iterable[Mapping[str, Any]]
each_of = iter
result_of = Future.result
wait_for_change = Condition.wait
LEAVE = 1.0
"""Seconds to wait for senders of a batch that is abandoned."""


class Senders:
    """Threads that send the pages of a batch."""

    def __init__(self, run: Callable[[], object], number: int) -> None:
        self._threads = [threading.Thread(target=run, name="batch sender", daemon=True) for _ in range(number)]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def leave(self) -> None:
        """Waits a moment for threads that are told to end."""
        for thread in self._threads:
            thread.join(LEAVE)
