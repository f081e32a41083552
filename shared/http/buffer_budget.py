"""What all connections of a process have sent and nobody has read yet: counted, and bounded.

When it is too much, the oldest large requests that are half here make room, and only then the oldest small ones. So a
sender who keeps many bodies waiting is thrown out by his own next ones, and requests below 64 kB are in nobody's way: a
thousand of them fit.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from typing import Protocol, TypeVar

SMALL = 64 << 10
"""Bytes up to which a request makes room only when no larger one is left."""
ENOUGH = 0.9
"""Of what may be kept, so that not every byte more looks for another one to refuse."""


class Request(Protocol):
    """A request on its way in."""

    begun: float


class Channel(Protocol):
    """A connection, with what is counted of it."""

    kept: int
    request: Request | None

    @property
    def unread(self) -> int:
        """Bytes of its requests."""


C = TypeVar("C", bound=Channel)


class BufferBudget:
    """Bytes of a process that wait to be read. The loop and the threads count here."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.total = 0
        self._lock = threading.Lock()

    def count(self, channel: Channel) -> None:
        """More has come, or some of it was read."""
        with self._lock:
            now = channel.unread
            self.total += now - channel.kept
            channel.kept = now

    def forget(self, channel: Channel) -> None:
        """The connection has gone."""
        with self._lock:
            self.total -= channel.kept
            channel.kept = 0

    def too_many(self, channels: Iterable[C]) -> Iterator[C]:
        """Those whose request that is half here is to be refused, while there is too much."""
        if self.total <= self.most:
            return
        half_here = [(each.kept <= SMALL, each.request.begun, each) for each in channels if each.kept and each.request]
        for _, _, channel in sorted(half_here, key=lambda each: each[:2]):
            if self.total <= ENOUGH * self.most:
                return
            yield channel
