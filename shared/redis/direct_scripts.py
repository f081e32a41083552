"""Runs scripts with little work per call, for programs that submit tasks directly.

The driver takes 40 us of processor for a command: for the pool, retries and its own metrics. Here a call takes an idle
connection, which may have been closed meanwhile, so callers repeat failed calls. When one has failed, the others are
closed too: after a restart of Redis only the first call fails.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from hiredis import pack_command
from redis import BlockingConnectionPool
from redis.exceptions import ResponseError

from firmq.shared.errors import StoreUnavailable
from firmq.shared.redis import append_only_file
from firmq.shared.redis.errors import translation
from firmq.shared.redis.scripts import COPY_WITHIN_MS, Argument, Reply, ScriptCall, Scripts, digest

if TYPE_CHECKING:
    from redis import Redis
    from redis.connection import Connection


_KEPT = 10
"""Idle connections that are kept here; others go back to the pool, for the commands that use it."""


class DirectScripts(Scripts):
    """Runs scripts on connections that it keeps. Thread-safe; not for use across a fork."""

    def __init__(self, redis: Redis, *, replicas: int = 0, confirm_writes: bool = False) -> None:
        super().__init__(redis, replicas=replicas, confirm_writes=confirm_writes)
        self._idle: deque[Connection] = deque()
        # A bounded pool needs its connections for other commands, which would wait for them in vain.
        self._kept = 0 if isinstance(redis.connection_pool, BlockingConnectionPool) else _KEPT

    def evalsha(self, script: str, *arguments: Argument) -> Reply:
        """Runs the script with this digest. Raises the driver's errors."""
        [reply] = self._round_trip([("EVALSHA", script, 1, self.declared, *arguments)])
        if isinstance(reply, Exception):
            raise reply
        return reply

    def call_accepted(self, name: str, *arguments: Argument) -> Reply:
        """Does the same as its base, in fewer steps for a call that succeeds."""
        if self.replicas:
            return super().call_accepted(name, *arguments)
        given = self.clock.script_argument()
        script = digest(self._confirming(name), self.keys)
        [reply] = self._round_trip([("EVALSHA", script, 1, self.declared, given, *arguments)])
        return super().call_accepted(name, *arguments) if isinstance(reply, Exception) else self._written(reply)

    def call_many_accepted(self, calls: Sequence[ScriptCall]) -> list[Reply | Exception]:
        """Runs scripts that accept tasks, as `call_accepted` does, in one round trip. Returns replies and errors."""
        given = self.clock.script_argument()
        commands: list[tuple[Argument, ...]] = [
            ("EVALSHA", digest(self._confirming(name), self.keys), 1, self.declared, given, *arguments)
            for name, arguments in calls
        ]
        if self.replicas:
            commands.append(("WAIT", self.replicas, COPY_WITHIN_MS))
        replies = self._round_trip(commands)
        copies = replies.pop() if self.replicas else 0
        if any(isinstance(reply, Exception) for reply in (*replies, copies)) or copies < self.replicas:
            # Such as a server that lost a script. A task that was stored is recognized by its id.
            return [self._outcome(each) for each in calls]
        return self._all_written(replies)

    def close(self) -> None:
        """Closes the idle connections."""
        with suppress(IndexError):
            while True:
                self._discard(self._idle.pop())

    def _outcome(self, call: ScriptCall) -> Reply | Exception:
        try:
            return self.call_accepted(call[0], *call[1])
        except Exception as error:
            return translation(error) or error

    def _all_written(self, replies: list[Any]) -> list[Reply | Exception]:
        """Returns the scripts' own replies, once postponed writes are in the append-only file."""
        postponed = [at for at, reply in enumerate(replies) if isinstance(reply, list) and reply[:1] == [b"POSTPONED"]]
        if not postponed:
            return replies
        outcome: StoreUnavailable | None = None
        try:
            append_only_file.await_write(self.redis, int(replies[postponed[-1]][1]))
        except StoreUnavailable as error:
            outcome = error
        for at in postponed:
            replies[at] = outcome or replies[at][2]
        return replies

    def _round_trip(self, commands: Sequence[tuple[Argument, ...]]) -> list[Any]:
        """Sends commands on one connection. Returns their replies, also those that are errors."""
        try:
            connection = self._idle.pop()
        except IndexError:
            connection = self.redis.connection_pool.get_connection()
        try:
            connection.send_packed_command([b"".join([_packed(each) for each in commands])])
            replies = [_reply(connection) for _ in commands]
        except BaseException:
            # Also for an interrupt: a connection whose replies were not read would give them to the next call.
            self._discard(connection)
            self.close()
            raise
        if len(self._idle) < self._kept:
            self._idle.append(connection)
        else:
            self.redis.connection_pool.release(connection)
        return replies

    def _discard(self, connection: Connection) -> None:
        connection.disconnect()
        self.redis.connection_pool.release(connection)


def _packed(command: tuple[Argument, ...]) -> bytes:
    packed: bytes = pack_command(command)  # type: ignore[arg-type]  # its stub knows tuples of one element only
    return packed


def _reply(connection: Connection) -> Any:
    try:
        return connection.read_response()
    except ResponseError as error:
        return error
