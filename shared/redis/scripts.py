"""Runs the Lua scripts, each one atomic step.

The store that calls a script knows the layout of its arguments and of its reply. A script is called by its digest; a
server that lost it (restart, SCRIPT FLUSH, failover) gets it again. Scripts derive the keys that they touch: one
primary holds all keys of a store (see `firmq.shared.redis.keys`). Each call declares one of them, because some
managed servers and proxies refuse a script without keys, or cannot route it.

Every script may be sent twice (redis-py resends after a lost answer): ids and lease tokens make the repetition
idempotent.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Collection, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from redis.exceptions import NoScriptError, ResponseError

from firmq.shared.domain.clock import Clock, RedisClock
from firmq.shared.domain.lock import NO_LOCK, FencingToken
from firmq.shared.errors import CorruptKey, IncompatibleSchema, NotPlaced, StepRefused, StoreRefused
from firmq.shared.redis import append_only_file, quarantine
from firmq.shared.redis.client import keys_of, mark_of, text, translated
from firmq.shared.redis.keys import Keys
from firmq.shared.redis.linker import CONFIRMING, source, with_quarantine

if TYPE_CHECKING:
    from redis import Redis

log = logging.getLogger(__name__)

Argument: TypeAlias = str | bytes | int
Reply: TypeAlias = Any
ScriptCall: TypeAlias = tuple[str, Sequence[Argument]]
"""A script's name and its arguments without the clock."""
T = TypeVar("T")
Steps: TypeAlias = Generator[ScriptCall, Reply, T]
"""Script calls of which each may depend on the reply to the one before it, and their outcome."""

NO_PLACE = (
    "this partition is draining and stores no new tasks, and no other one takes this task: activate it with "
    "`firmq partitions activate`, or add another"
)
COPY_WITHIN_MS = 500
"""How long a submission waits for replicas; shorter than the time-out of the gateway's client."""


@cache
def digest(name: str, keys: Keys) -> str:
    """Returns the digest by which the server knows a script."""
    return hashlib.sha1(source(name, keys).encode(), usedforsecurity=False).hexdigest()


def _translated(error: Exception) -> Exception:
    """Returns our error for a step whose lock has ended, or for data of another version; else the error itself."""
    if str(error).startswith("FORMAT"):
        return IncompatibleSchema(str(error).removeprefix("FORMAT "))
    if str(error).startswith("PLACEMENT"):
        return NotPlaced(NO_PLACE)
    return StepRefused() if str(error).startswith("OUTLIVED") else error


class Scripts:
    """Runs scripts on one connection pool, on one clock."""

    def __init__(
        self, redis: Redis, clock: Clock | None = None, *, replicas: int = 0, confirm_writes: bool = False
    ) -> None:
        """`replicas` is the number of replicas that must have a task before it is accepted.

        With `confirm_writes` the append-only file must have it too, and every other change that is answered.
        """
        self.redis = redis
        self.keys = keys_of(redis)
        self.declared = self.keys.NOTHING
        self.mark = mark_of(redis)
        self.replicas = replicas
        self.confirm_writes = confirm_writes
        self.clock = clock or RedisClock()

    def call(self, name: str, *arguments: Argument) -> Reply:
        """Runs one script."""
        given = self.clock.script_argument()
        try:
            return self.evalsha(digest(name, self.keys), given, *arguments)
        except NoScriptError:
            return self._teach(name, given, *arguments)
        except ResponseError as error:
            return self._call_with_quarantine(error, name, *arguments)

    def evalsha(self, script: str, *arguments: Argument) -> Reply:
        """Runs the script with this digest. Raises the driver's errors."""
        return self.redis.evalsha(script, 1, self.declared, *arguments)

    def _teach(self, name: str, *arguments: Argument) -> Reply:
        try:
            return self.redis.eval(source(name, self.keys), 1, self.declared, *arguments)
        except ResponseError as error:
            return self._call_with_quarantine(error, name, *arguments[1:])

    def _call_with_quarantine(self, error: Exception, name: str, *arguments: Argument) -> Reply:
        """Runs a script that failed on corrupt data again, and quarantines that. Raises otherwise."""
        if not quarantine.is_corruption(error):
            raise _translated(error) from error
        log.error("script %s met corrupt data and is run again with quarantine: %s", name, error)
        self.quarantine()
        try:
            given = self.clock.script_argument()
            return self.redis.eval(with_quarantine(name, self.keys), 1, self.declared, given, *arguments)
        except ResponseError as again:
            raise _translated(again) from again

    def quarantine(
        self,
        fencing_token: FencingToken = NO_LOCK,
        wanted: Mapping[str, str] | None = None,
        queues: Collection[str] = (),
    ) -> int:
        """Quarantines keys of another type than theirs, of these or of the whole system; returns how many.

        The keys of `queues` are examined beside the queues in RQ's register.
        """
        given = self.clock.script_argument()
        pairs = {**quarantine.single(self.keys), **quarantine.of_queue(self.keys)} if wanted is None else wanted
        arguments = [part for pair in pairs.items() for part in pair]
        try:
            script = with_quarantine("quarantine", self.keys)
            lock = (fencing_token.lock, fencing_token.token)
            found = self.redis.eval(script, 1, self.declared, given, *lock, len(queues), *queues, *arguments)
        except ResponseError as error:
            raise _translated(error) from error
        for key, held in zip(found[::2], found[1::2], strict=True):
            log.error("key %s held a %s, another type than expected: quarantined", text(key), text(held))
        return len(found) // 2

    @contextmanager
    def quarantining(self, wanted: Mapping[str, str]) -> Iterator[None]:
        """Wraps reading of numerous keys: one of another type is quarantined, so that the next read succeeds.

        Raises CorruptKey this time, and the errors of `translated`.
        """
        try:
            with translated():
                yield
        except CorruptKey:
            with translated():
                self.quarantine(wanted=wanted)
            raise

    def call_many(self, calls: Sequence[ScriptCall]) -> list[Reply]:
        """Runs several scripts, each atomic for itself, in one round trip; raises the first error.

        A server that lost a script still runs the others, so only the lost ones are sent again.
        """
        if len(calls) == 1:
            return [self.call(calls[0][0], *calls[0][1])]
        given = self.clock.script_argument()
        with self.redis.pipeline(transaction=False) as pipeline:
            for name, arguments in calls:
                pipeline.evalsha(digest(name, self.keys), 1, self.declared, given, *arguments)
            replies = pipeline.execute(raise_on_error=False)
        for at, reply in enumerate(replies):
            if isinstance(reply, NoScriptError):
                replies[at] = self.call(calls[at][0], *calls[at][1])
            elif isinstance(reply, Exception):
                replies[at] = self._call_with_quarantine(reply, calls[at][0], *calls[at][1])
        return replies

    def call_accepted(self, name: str, *arguments: Argument) -> Reply:
        """Runs one script that accepts tasks, and returns when `replicas` and the append-only file have its writes.

        Raises StoreRefused when they do not have them in time.
        """
        return self._written(self._call_copied(self._confirming(name), *arguments))

    def run_accepted(self, steps: Steps[T]) -> T:
        """Runs the script calls of a submission and returns its outcome."""
        reply = None
        while True:
            try:
                name, arguments = steps.send(reply)
            except StopIteration as end:
                outcome: T = end.value
                return outcome
            try:
                reply = self.call_accepted(name, *arguments)
            except Exception as error:
                steps.throw(error)  # the span of the submission records it
                raise

    def call_answered(self, name: str, *arguments: Argument) -> Reply:
        """Runs one script whose effect is confirmed to a caller, and returns when the append-only file has it."""
        return self._written(self.call(self._confirming(name), *arguments))

    def _confirming(self, name: str) -> str:
        return name + CONFIRMING if self.confirm_writes else name

    def _written(self, reply: Reply) -> Reply:
        """Returns the script's own reply, once postponed writes are in the append-only file."""
        if not (isinstance(reply, list) and reply and reply[0] == b"POSTPONED"):
            return reply
        append_only_file.await_write(self.redis, int(reply[1]))
        return reply[2]

    def _call_copied(self, name: str, *arguments: Argument) -> Reply:
        """Runs a script and waits for replicas; WAIT counts writes of its connection, so both use one."""
        if not self.replicas:
            return self.call(name, *arguments)
        given = self.clock.script_argument()
        reply, copies = self._run_and_wait("EVALSHA", digest(name, self.keys), 1, self.declared, given, *arguments)
        if isinstance(reply, NoScriptError):
            reply, copies = self._run_and_wait("EVAL", source(name, self.keys), 1, self.declared, given, *arguments)
        if isinstance(reply, Exception) and quarantine.is_corruption(reply):
            self._call_with_quarantine(reply, name, *arguments)
            return self._call_copied(name, *arguments)
        for each in (reply, copies):
            if isinstance(each, Exception):
                raise _translated(each)
        if copies < self.replicas:
            raise StoreRefused(
                f"stored, but on {copies} replicas instead of {self.replicas}, so it could get lost: check them"
            )
        return reply

    def _run_and_wait(self, *command: Argument) -> tuple[Reply, Any]:
        with self.redis.pipeline(transaction=False) as pipeline:
            pipeline.execute_command(*command)
            pipeline.execute_command("WAIT", self.replicas, COPY_WITHIN_MS)
            reply, copies = pipeline.execute(raise_on_error=False)
        return reply, copies

    def now_us(self) -> int:
        """Returns the time of the scripts' clock (µs)."""
        if given := self.clock.script_argument():
            return int(given)
        seconds, us = self.redis.time()
        return int(seconds) * 1_000_000 + int(us)
