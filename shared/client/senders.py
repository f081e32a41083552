"""A batch's tools from threads; firmq.shared.client.aio.senders is the same for asyncio."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from threading import Condition

__all__ = ["Condition", "Future", "Senders", "result_of", "wait_for_change"]

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
        """Waits a moment for threads that were asked to end."""
        for thread in self._threads:
            thread.join(LEAVE)
