"""Counts and bounds the bytes that all connections of a process have received and not processed.

Above the bound, the oldest large incomplete requests are refused first, and only then the oldest small ones. A client
that leaves many bodies incomplete thus displaces its own requests, and requests below 64 kB are not affected: a
thousand of them fit.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from typing import Protocol, TypeVar

SMALL = 64 << 10
"""Bytes up to which a request is refused only when no larger one is left."""
ENOUGH = 0.9
"""Share of the bound down to which requests are refused, so that not every further byte triggers a refusal."""


class Request(Protocol):
    """An incoming request."""

    begun: float


class Channel(Protocol):
    """A connection with its counted bytes."""

    kept: int
    request: Request | None

    @property
    def unread(self) -> int:
        """Returns the bytes of its requests."""


C = TypeVar("C", bound=Channel)


class BufferBudget:
    """The unprocessed bytes of a process. Used by the loop and by threads."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.total = 0
        self._lock = threading.Lock()

    def count(self, channel: Channel) -> None:
        """Updates the bytes of a connection after data was received or processed."""
        with self._lock:
            now = channel.unread
            self.total += now - channel.kept
            channel.kept = now

    def forget(self, channel: Channel) -> None:
        """Removes the bytes of a closed connection."""
        with self._lock:
            self.total -= channel.kept
            channel.kept = 0

    def too_many(self, channels: Iterable[C]) -> Iterator[C]:
        """Yields connections whose incomplete request is to be refused, while the bound is exceeded."""
        if self.total <= self.most:
            return
        half_here = [(each.kept <= SMALL, each.request.begun, each) for each in channels if each.kept and each.request]
        for _, _, channel in sorted(half_here, key=lambda each: each[:2]):
            if self.total <= ENOUGH * self.most:
                return
            yield channel
