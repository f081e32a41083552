"""The Lua scripts, each one atomic step, with one typed method each.

This is the only file that knows how a script's arguments are laid out. A script is called by its digest; a server
that has forgotten it (restart, SCRIPT FLUSH, failover) is taught again and asked again. Scripts derive the keys that
they touch, so none are declared: the product needs a single primary (see `shared.keys`).

Every script may be sent twice (redis-py sends again after a lost answer): ids and lease tokens make the second time
change nothing.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any, TypeAlias

from redis.exceptions import NoScriptError

from shared.clock import Clock, RedisClock

if TYPE_CHECKING:
    from redis import Redis

Argument: TypeAlias = str | bytes | int
Reply: TypeAlias = Any
ScriptCall: TypeAlias = tuple[str, Sequence[Argument]]
"""A script's name and its arguments without the clock."""


@cache
def source(name: str) -> str:
    """The text of a script with the prelude in front."""
    folder = files("shared") / "lua"
    return f"{(folder / '_prelude.lua').read_text()}\n{(folder / f'{name}.lua').read_text()}"


@cache
def digest(name: str) -> str:
    """What the server calls a script."""
    return hashlib.sha1(source(name).encode(), usedforsecurity=False).hexdigest()


class Scripts:
    """The scripts on one connection pool, on one clock."""

    def __init__(self, redis: Redis, clock: Clock | None = None) -> None:
        self.redis = redis
        self.clock = clock or RedisClock()

    def call(self, name: str, *arguments: Argument) -> Reply:
        """Runs one script."""
        given = self.clock.script_argument()
        try:
            return self.redis.evalsha(digest(name), 0, given, *arguments)
        except NoScriptError:
            return self.redis.eval(source(name), 0, given, *arguments)

    def call_many(self, calls: Sequence[ScriptCall]) -> list[Reply]:
        """Runs several scripts, each atomic for itself, in one round trip; the first error is raised.

        A server that has forgotten a script runs the others all the same, so only the forgotten ones are sent again.
        """
        if len(calls) == 1:
            return [self.call(calls[0][0], *calls[0][1])]
        given = self.clock.script_argument()
        with self.redis.pipeline(transaction=False) as pipeline:
            for name, arguments in calls:
                pipeline.evalsha(digest(name), 0, given, *arguments)
            replies = pipeline.execute(raise_on_error=False)
        for at, reply in enumerate(replies):
            if isinstance(reply, NoScriptError):
                replies[at] = self.call(calls[at][0], *calls[at][1])
            elif isinstance(reply, Exception):
                raise reply
        return replies

    def submit(self, limit: int, tasks: Iterable[Sequence[Argument]]) -> list[bytes]:
        """Stores tasks; per task its state, or b"full". Eight arguments per task, as `submit.lua` lists them."""
        reply: list[bytes] = self.call("submit", limit, *(field for task in tasks for field in task))
        return reply

    def cancel(self, task_id: str, reason: str) -> tuple[str, str]:
        """The state found and what happened: cancelled, requested, ended or unknown."""
        state, happened = self.call("cancel", task_id, reason)
        return state.decode(), happened.decode()

    def promote(self, queue: str, limit: int) -> tuple[int, int, int | None]:
        """Moves due tasks: how many, the lateness of the latest (µs), when the next is due (µs)."""
        moved, lateness, due = self.call("promote", queue, limit)
        return moved, int(lateness), int(float(due)) if due else None

    def reap(self, limit: int, max_crashes: int) -> list[tuple[str, str, str, str, str, int]]:
        """Ends attempts whose lease ran out: id, type, queue, worker, new state and crashes of each."""
        reply = self.call("reap", limit, max_crashes)
        return [(*(part.decode() for part in row[:5]), row[5]) for row in reply]

    def expire(self, limit: int) -> int:
        """Ends waiting tasks that are too old to start; how many."""
        return int(self.call("expire", limit))

    def prune(self, state: str, age_us: int, limit: int) -> int:
        """Removes tasks that ended in `state` longer ago than `age_us`; how many."""
        return int(self.call("prune", state, age_us, limit))

    def recover(self, queue: str, grace_us: int, limit: int) -> int:
        """Gives pending tasks that lost their ticket a new one; how many."""
        return int(self.call("recover", queue, grace_us, limit))

    def requeue(self, ids: Sequence[str]) -> list[tuple[str, bool]]:
        """Sends dead letters back to their queues: the state found and whether it was done, for each."""
        return [(state.decode(), bool(done)) for state, done in self.call("requeue", *ids)]

    def purge(self, state: str, ids: Sequence[str]) -> list[tuple[str, bool]]:
        """Removes tasks that ended in `state`: the state found and whether it was done, for each."""
        return [(found.decode(), bool(done)) for found, done in self.call("purge", state, *ids)]

    def page(self, arguments: Sequence[Argument]) -> Reply:
        """One page of a list; `shared.records` lays out the arguments and reads the reply."""
        return self.call("page", *arguments)
