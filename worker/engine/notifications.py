"""Waiting for Redis to call, on connections that the engine watches beside everything else.

No thread waits here: a thread more is a switch more between a task's submission and its start.
"""

from __future__ import annotations

import logging
import selectors
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from redis.exceptions import RedisError, TimeoutError

if TYPE_CHECKING:
    from redis import Redis

log = logging.getLogger(__name__)

_PAUSE = 1.0
"""Seconds before another try to connect."""
_LATE = 2.0
"""Seconds after its patience that an answer may still take; then the connection is dead without a word."""


class Listener(ABC):
    """A connection that only waits: what it is asked, and what an answer means, is for its kinds to say."""

    def __init__(self, redis: Redis, selector: selectors.BaseSelector) -> None:
        """`redis` needs short time-outs: connecting is all that is ever waited for."""
        self.pool = redis.connection_pool
        self._selector = selector
        self._connection: Any = None
        self._fd = -1
        self._not_before = 0.0

    @abstractmethod
    def on_reply(self, reply: list[bytes] | None) -> None:
        """Takes in one answer."""

    def read_replies(self) -> None:
        """Reads what has come; the engine calls it when there is something."""
        try:
            while self._connection is not None:
                self.on_reply(self._connection.read_response(timeout=0, disconnect_on_error=False))
        except TimeoutError:
            return  # that was all, or not all of it yet
        except (RedisError, OSError) as error:
            self._lose(error)

    def close(self) -> None:
        """Ends listening at once."""
        if self._connection is None:
            return
        if self._fd >= 0:
            self._selector.unregister(self._fd)
            self._fd = -1
        connection, self._connection = self._connection, None
        connection.disconnect()
        self.pool.release(connection)

    def _ask(self, *command: str | float) -> bool:
        """Sends a command, on a new connection if need be; nothing is raised, the next call tries again."""
        if time.monotonic() < self._not_before:
            return False
        try:
            if self._connection is None:
                self._connect()
            self._connection.send_command(*command)
        except (RedisError, OSError) as error:
            self._lose(error)
            return False
        return True

    def _connect(self) -> None:
        self._connection = self.pool.get_connection()
        self._fd = self._connection._sock.fileno()  # noqa: SLF001  # redis-py has no other way to watch a connection
        self._selector.register(self._fd, selectors.EVENT_READ, self.read_replies)

    def _lose(self, why: object) -> None:
        log.debug("waiting for Redis to call failed: %s", why)
        self._not_before = time.monotonic() + _PAUSE
        self.close()


class BlockingPopListener(Listener):
    """Blocks on lists at the server and hands every entry on; `None` when none came within its patience.

    It asks only when told to `listen`: the bell wakes one worker, and a busy one must not take the ring from an idle
    one.
    """

    def __init__(
        self,
        redis: Redis,
        lists: Sequence[str],
        selector: selectors.BaseSelector,
        deliver: Callable[[bytes | None], object],
        patience: float,
    ) -> None:
        super().__init__(redis, selector)
        self.lists = lists
        self.deliver = deliver
        self.patience = patience
        self._asked_at: float | None = None
        self._asked: frozenset[str] = frozenset()

    def listen(self) -> None:
        """Asks for the next entry, unless it is asked already."""
        now = time.monotonic()
        if self._asked_at is not None and not self._asked.issuperset(self.lists):
            self.close()  # a list more is asked for on a new connection; what this one may have brought is looked for
            self.deliver(None)
        if self._asked_at is None:
            if self._ask("BLPOP", *self.lists, self.patience):
                self._asked_at, self._asked = now, frozenset(self.lists)
        elif now > self._asked_at + self.patience + _LATE:
            self._lose("no answer")

    def on_reply(self, reply: list[bytes] | None) -> None:
        self._asked_at = None
        self.deliver(reply[1] if reply else None)

    def close(self) -> None:
        self._asked_at = None
        super().close()

    def _lose(self, why: object) -> None:
        super()._lose(why)
        self.deliver(None)  # whoever listens looks for himself, and finds that Redis is away


class PubSubListener(Listener):
    """Hands on what is published on one channel."""

    def __init__(
        self, redis: Redis, channel: str, selector: selectors.BaseSelector, deliver: Callable[[bytes], object]
    ) -> None:
        super().__init__(redis, selector)
        self.channel = channel
        self.deliver = deliver

    def listen(self) -> None:
        """Subscribes, unless that is done."""
        if self._connection is None:
            self._ask("SUBSCRIBE", self.channel)

    def on_reply(self, reply: list[bytes] | None) -> None:
        if reply and reply[0] == b"message":
            self.deliver(reply[2])
