"""A TTL cache with single flight: concurrent requests for the same answer share one read of Redis."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, TypeVar

from firmq.shared.errors import StoreUnavailable

T = TypeVar("T")

FRESH = 2.0
"""Seconds for which an answer is valid, unless more than READS * FRESH answers are in use."""
READS = 20
"""Bound on reads per second when hundreds of tabs show different pages."""
OUTAGE = 1.0
"""Seconds without a read after Redis did not answer; else every thread would wait for it in turn."""
UNUSED = 60.0
"""Seconds after which an answer that was not read again is dropped."""
MOST = 512
LARGEST = 3 * 1024 * 1024
"""Bytes of all cached records. Parsed, they can take thirty times as much memory."""


@dataclass(slots=True)
class _Entry:
    at: float
    answer: Future[Any] = field(default_factory=Future)
    size: int = 0

    def age(self) -> float:
        return time.monotonic() - self.at


class TTLCache:
    """Keeps answers for two seconds, so that a hundred tabs on one page load Redis as much as one.

    With very many different pages open, each answer is kept for longer, so that the total load stays bounded: ten
    seconds with two hundred. A request for an answer that is being read waits for that read.
    """

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.entries: dict[Hashable, _Entry] = {}
        """The answers, the one read last at the end."""
        self.failure: tuple[float, StoreUnavailable] | None = None

    def get(
        self, key: Hashable, read: Callable[[], T], ttl: float | None = None, size: Callable[[T], int] = lambda _: 0
    ) -> T:
        """Returns the cached answer, or reads it.

        `ttl` is in seconds and holds whatever the number of answers; `size` returns bytes. An error of `read` is raised
        in all waiting threads and not kept, except that an outage of Redis is raised for all keys for a second.
        """
        with self.lock:
            entry = self.entries.get(key)
            if is_due := entry is None or entry.age() > (ttl or max(FRESH, len(self.entries) / READS)):
                entry = self._add(key)
        if is_due:
            self._fill(key, entry, read, size)
        answer: T = entry.answer.result()
        return answer

    def clear(self) -> None:
        """Drops all answers after a change, also those that are being read."""
        with self.lock:
            self.entries.clear()

    def _add(self, key: Hashable) -> _Entry:
        if self.failure and time.monotonic() - self.failure[0] < OUTAGE:
            raise self.failure[1]
        self.entries.pop(key, None)
        added = self.entries[key] = _Entry(time.monotonic())
        return added

    def _fill(self, key: Hashable, entry: _Entry, read: Callable[[], T], size: Callable[[T], int]) -> None:
        try:
            answer = read()
        except BaseException as error:
            with self.lock:
                if self.entries.get(key) is entry:
                    del self.entries[key]
                if type(error) is StoreUnavailable:  # the subclasses are quick answers about one page
                    self.failure = time.monotonic(), error
            entry.answer.set_exception(error)
            return
        entry.size = size(answer)
        entry.answer.set_result(answer)
        with self.lock:
            self._evict(entry)

    def _evict(self, newest: _Entry) -> None:
        """Drops answers that were not read again, and the oldest while there are too many or too large ones."""
        total = sum(each.size for each in self.entries.values())
        for key, entry in list(self.entries.items()):
            if entry is newest or (entry.age() < UNUSED and len(self.entries) <= MOST and total <= LARGEST):
                break
            total -= self.entries.pop(key).size
