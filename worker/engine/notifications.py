"""Notifications of Redis, on connections that the engine watches with everything else.

No thread waits here: another thread would add a context switch between a task's submission and its start.
"""

from __future__ import annotations

import logging
import selectors
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from redis.exceptions import RedisError, TimeoutError

from firmq.shared.redis.client import keys_of

if TYPE_CHECKING:
    from redis import Redis

    from firmq.worker.engine.claimed_queues import ClaimedQueues

log = logging.getLogger(__name__)

WAKEUP, COMMAND, DIRECT_DISPATCH = "wake-up", "command", "direct dispatch"
PATIENCE = 4.0
"""Seconds that an idle worker waits for a wake-up before it claims by itself, from its lanes in turns."""
_PAUSE = 1.0
"""Seconds before another try to connect."""
_LATE = 2.0
"""Seconds after its time-out that an answer may still take; then the connection counts as dead."""


class Listener(ABC):
    """A connection that only waits; subclasses define the command and the meaning of an answer."""

    def __init__(self, redis: Redis, selector: selectors.BaseSelector) -> None:
        """`redis` needs short time-outs: only connecting blocks."""
        self.pool = redis.connection_pool
        self._selector = selector
        self._connection: Any = None
        self._fd = -1
        self._not_before = 0.0

    @abstractmethod
    def on_reply(self, reply: list[bytes] | None) -> None:
        """Handles one answer."""

    def read_replies(self) -> None:
        """Reads notifications; the engine calls it when the socket is readable."""
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
        """Sends a command, on a new connection if needed; returns False on failure, and the next call tries again."""
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
        log.debug("listening failed: %s", why)
        self._not_before = time.monotonic() + _PAUSE
        self.close()


class BlockingPopListener(Listener):
    """Blocks on lists at the server and delivers every entry; `None` when none came within its time-out.

    When its connection is lost or closed, an entry may be lost with it: it delivers an empty one.

    It pops only after `listen`: a wake-up wakes one worker, and a busy worker must not take it from an idle one.
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

    def listen(self, lists: Sequence[str] = ()) -> None:
        """Requests the next entry, unless a request is open; `lists` replace the earlier ones."""
        self.lists = lists or self.lists
        now = time.monotonic()
        if self._asked_at is not None and not self._asked.issuperset(self.lists):
            self.close()  # another list needs a new connection; work of a lost entry is claimed anyway
            self.deliver(b"")
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
        self.deliver(b"")  # the engine then claims, and finds that Redis is unreachable


class PubSubListener(Listener):
    """Delivers the messages of one channel."""

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


class Notifications:
    """Redis' notifications for one worker: wake-ups, commands, direct dispatches; each on a connection of its own."""

    def __init__(self, redis: Redis, worker: str, queues: ClaimedQueues, selector: selectors.BaseSelector) -> None:
        self.received: deque[tuple[str, bytes | None]] = deque()
        """Returns a kind and its message, for a wake-up a lane ("" for any); None when none came in time."""
        self._queues = queues
        self._keys = keys = keys_of(redis)
        self._wakeup_lists = [keys.WAKEUP]
        self._wanted: tuple[tuple[str, ...], Collection[str], int] = ((), frozenset(), -1)
        self._commands = BlockingPopListener(redis, (keys.control(worker),), selector, self._taker(COMMAND), PATIENCE)
        self._wakeups = BlockingPopListener(redis, (keys.WAKEUP,), selector, self._taker(WAKEUP), PATIENCE)
        self._direct_dispatches = PubSubListener(
            redis, keys.direct_dispatch(worker), selector, self._taker(DIRECT_DISPATCH)
        )

    def _taker(self, kind: str) -> Callable[[bytes | None], None]:
        return partial(self._take, kind)

    def _take(self, kind: str, message: bytes | None) -> None:
        self.received.append((kind, message))

    def listen(self, suffixes: Sequence[str], full: Collection[str]) -> None:
        """Waits for commands and direct dispatches, and for wake-ups of the lanes that wait for work.

        These are the lanes with one of the suffixes that are not `full`.
        """
        self._commands.listen()
        self._direct_dispatches.listen()
        if suffixes:
            wanted = (tuple(suffixes), full, self._queues.changes)
            if wanted != self._wanted:
                self._wanted = wanted
                lanes = [queue + suffix for suffix in suffixes for queue in self._queues.known]
                free = (self._keys.wakeup(lane) for lane in lanes if lane not in full)
                self._wakeup_lists = [*free, self._keys.WAKEUP]
            self._wakeups.listen(self._wakeup_lists)

    def close(self) -> None:
        for listener in (self._wakeups, self._commands, self._direct_dispatches):
            listener.close()
