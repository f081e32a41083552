"""Locks that several housekeepers share, and the lock that is always free.

A lock saves work; it does not protect data. A holder may be frozen for an hour and continue as if nothing had happened,
so each step that changes data carries a fencing token, and the script refuses one whose lock has ended (`lock_ended` in
`_records.lua`). A holder also stops by itself: it trusts its lock for a part of its life, counted on its own monotonic
clock from before the request.
"""

from __future__ import annotations

import logging
import os
import random
import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cache
from typing import TYPE_CHECKING, Protocol

from firmq.shared.domain.clock import instant, to_us
from firmq.shared.domain.decode import whole_or_none
from firmq.shared.domain.lock import NO_LOCK, FencingToken, Lock, OnError, Taken
from firmq.shared.errors import LockChanged, LockLost, StoreUnavailable
from firmq.shared.redis.client import text, text_or_number, translated
from firmq.shared.registry import features_of

if TYPE_CHECKING:
    from firmq.shared.redis.scripts import Scripts

log = logging.getLogger(__name__)

TRUST = 0.8
"""Part of a lock's life for which its holder trusts it without an answer of Redis."""

RENEWALS = 3
"""Renewals in one life of a lock: two may fail before the trust is used up."""


ENDING = 2.0
"""Seconds to wait for the end of a renewal: as long as a command to Redis may take."""

HANDLERS = "task."
"""Prefix of the locks of handlers; the others are housekeeping's."""


def unanswered() -> tuple[type[Exception], ...]:
    """Returns the errors of taking or renewing a lock when Redis is unreachable or holds data of another version."""
    from redis.exceptions import RedisError  # on first use: see `shared/redis/client.py`

    return RedisError, OSError, StoreUnavailable


class LockEvents(Protocol):
    """Counts the events of locks."""

    def tried(self, name: str, result: Taken, seconds: float) -> None: ...
    def held(self, name: str, seconds: float) -> None: ...
    def renewal_failed(self, name: str) -> None: ...
    def lost(self, name: str) -> None: ...


class Uncounted:
    """Counts nothing."""

    def tried(self, name: str, result: Taken, seconds: float) -> None: ...
    def held(self, name: str, seconds: float) -> None: ...
    def renewal_failed(self, name: str) -> None: ...
    def lost(self, name: str) -> None: ...


class HeldLock(Protocol):
    """A lock that this process holds."""

    @property
    def name(self) -> str: ...

    @property
    def term(self) -> int:
        """Returns the fencing number: larger than every earlier holder's."""
        ...

    @property
    def fencing_token(self) -> FencingToken: ...

    @property
    def trusted(self) -> bool:
        """Returns whether the holder may act. Once False it stays False, unless a late renewal still succeeds."""
        ...

    def check(self) -> None:
        """Raises LockLost when the holder must stop. Costs nothing: call it between batches."""
        ...

    def extend(self) -> bool:
        """Renews it; returns False when it is lost. Raises the driver's error when Redis does not answer."""
        ...

    def release(self) -> bool:
        """Releases it; returns False when it was no longer held, or when Redis does not answer."""
        ...


class Locks(Protocol):
    """A source of locks."""

    @property
    def reachable(self) -> bool:
        """Returns whether the last request for a lock was answered."""
        ...

    def acquire(self, lock: Lock) -> HeldLock | None:
        """Returns the lock, or None when it is not available: losing a race is not an error."""
        ...

    def stop(self) -> None:
        """Stops renewing."""
        ...


# --- Without locks -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class FreeLock:
    """A lock that is always held and never lost."""

    name: str
    term: int = 0
    fencing_token: FencingToken = NO_LOCK
    trusted: bool = True

    def check(self) -> None:
        pass

    def extend(self) -> bool:
        return True

    def release(self) -> bool:
        return True


class NoLocks:
    """For a single housekeeper: every lock is free."""

    reachable = True

    def acquire(self, lock: Lock) -> HeldLock | None:
        return FreeLock(lock.name)

    def stop(self) -> None:
        pass


# --- In Redis ----------------------------------------------------------------------------------------------------


@dataclass(slots=True, eq=False)
class RedisLock:
    """A lock in Redis that this process holds."""

    locks: RedisLocks
    lock: Lock
    token: str
    trusted_until: float
    renew_at: float
    taken_at: float
    lost: bool = False

    @property
    def name(self) -> str:
        return self.lock.name

    @property
    def term(self) -> int:
        return int(self.token.partition(":")[0])

    @property
    def fencing_token(self) -> FencingToken:
        return FencingToken(self.lock.name, self.token)

    @property
    def trusted(self) -> bool:
        return not self.lost and self.locks.monotonic() < self.trusted_until

    def check(self) -> None:
        if not self.trusted:
            raise LockLost(lock=self.name)

    def extend(self) -> bool:
        return not self.lost and self.locks.extend([self])[0]

    def release(self) -> bool:
        return self.locks.release(self)


@dataclass(slots=True)
class RedisLocks:
    """Locks of one instance. A thread renews held locks at a third of their life."""

    scripts: Scripts
    owner: str
    events: LockEvents = field(default_factory=Uncounted)
    monotonic: Callable[[], float] = time.monotonic
    reachable: bool = True
    _held: set[RedisLock] = field(default_factory=set)
    _changed: threading.Condition = field(default_factory=threading.Condition)
    _looks_at: float = float("inf")
    _stopped: bool = False
    _thread: threading.Thread | None = None

    def acquire(self, lock: Lock) -> HeldLock | None:
        began = self.monotonic()
        until = began + lock.wait.total_seconds()
        while True:
            result, held = self._try(lock)
            if held or result is Taken.ERROR or self.monotonic() >= until:
                break
            # Random, so that waiting instances do not all retry in the same moment.
            time.sleep(min(random.uniform(0.02, 0.1), max(0.0, until - self.monotonic())))
        self.events.tried(lock.name, result, self.monotonic() - began)
        if result is Taken.ERROR and lock.on_error is OnError.RUN:
            return FreeLock(lock.name)
        return held

    def extend(self, locks: list[RedisLock]) -> list[bool]:
        """Renews several in one round trip. Raises the driver's error."""
        sent_at = self.monotonic()
        answers = _lock_extend(self.scripts, [(each.fencing_token, each.lock) for each in locks])
        for each, kept in zip(locks, answers, strict=True):
            if kept:
                self._trust(each, sent_at)
            else:
                self._lose(each)
        return answers

    def release(self, held: RedisLock) -> bool:
        with self._changed:
            self._held.discard(held)
        held.lost, was_lost = True, held.lost
        self.events.held(held.name, self.monotonic() - held.taken_at)
        if was_lost:
            return False
        try:
            token = held.fencing_token
            released = bool(self.scripts.call("lock_release", token.lock, token.token))
        except unanswered() as error:
            log.warning("lock %s could not be released and will expire: %s", held.name, error)
            return False
        log.debug("Released distributed lock %s by instance %s", held.name, self.owner)
        return released

    def stop(self) -> None:
        with self._changed:
            self._stopped = True
            self._changed.notify()
        if self._thread is not None:
            self._thread.join(ENDING)

    def _try(self, lock: Lock) -> tuple[Taken, RedisLock | None]:
        sent_at = self.monotonic()
        try:
            result, token = lock_acquire(
                self.scripts,
                lock.name,
                secrets.token_hex(8),
                self.owner,
                lock.at_most,
                lock.at_least,
                threading.get_native_id(),
                lock.silence,
            )
        except unanswered() as error:
            self._note(False, f"locks unavailable, Redis does not answer: {error}")
            return Taken.ERROR, None
        self._note(True, "locks available again")
        if result is Taken.FULL:
            log.error("lock %s was not taken: the limit of lock names is reached; use fewer names", lock.name)
        if result is not Taken.ACQUIRED:
            return result, None
        held = RedisLock(self, lock, token, 0.0, 0.0, sent_at)
        self._trust(held, sent_at)
        self._watch(held)
        return result, held

    def _note(self, reachable: bool, message: str) -> None:
        """Logs a change once, not in every run of every job."""
        if reachable is not self.reachable:
            self.reachable = reachable
            log.warning(message)

    def _trust(self, held: RedisLock, since: float) -> None:
        life = held.lock.lease.total_seconds()
        held.trusted_until = since + TRUST * life
        held.renew_at = since + life / RENEWALS

    def _lose(self, held: RedisLock) -> None:
        if held.lost:
            return
        held.lost = True
        self.events.lost(held.name)
        log.warning("lock %s was lost: it expired or was taken away", held.name)

    # --- the watchdog ---

    def _watch(self, held: RedisLock) -> None:
        with self._changed:
            self._held.add(held)
            if self._thread is None:
                self._thread = threading.Thread(target=self._keep_alive, name="locks", daemon=True)
                self._thread.start()
            elif held.renew_at < self._looks_at:
                self._changed.notify()

    def _keep_alive(self) -> None:
        while due := self._wait_for_due():
            try:
                self.extend(due)
            except unanswered() as error:
                self._try_again_soon(due, error)

    def _wait_for_due(self) -> list[RedisLock]:
        """Waits for locks to renew and returns them; returns none when it is time to end."""
        with self._changed:
            while not self._stopped:
                now = self.monotonic()
                alive = [each for each in self._held if not each.lost]
                if due := [each for each in alive if each.renew_at <= now]:
                    return due
                self._looks_at = min((each.renew_at for each in alive), default=float("inf"))
                self._changed.wait(self._looks_at - now if alive else None)
        return []

    def _try_again_soon(self, locks: Iterable[RedisLock], error: Exception) -> None:
        for each in locks:
            self.events.renewal_failed(each.name)
            each.renew_at = self.monotonic() + each.lock.lease.total_seconds() / (RENEWALS * 5)
        log.warning("locks could not be renewed: %s", error)


# --- Administration-----------------------------------------------------------------------------------------------

LEADER = "metrics"
"""The lock of the leader, which alone shows the gauges of the whole system."""

_OF_THE_CORE = (
    *("unlock", "timeout", "recovery", "ttl", "max_elements", LEADER),
    "schedules",
)


@cache
def lock_names() -> Sequence[str]:
    """Returns the names of the locks: one for each housekeeping job of the core and of the features."""
    return [*_OF_THE_CORE, *(name for feature in features_of("shared") for name in feature.jobs)]


BAR = timedelta(seconds=10)
"""How long a leader that stepped down is blocked from leading again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LockInfo:
    """The current state of a lock. `fence` is the number of its last holder, also when it is free.

    `thread_id` is the thread that took it, numbered by the operating system of its owner.
    """

    name: str
    token: str | None
    owner: str | None
    fence: int | None
    acquired_at: datetime | None
    remaining: timedelta
    thread_id: int | None = None

    @property
    def locked(self) -> bool:
        return self.token is not None


class LockAdmin:
    """Shows locks, and takes them away in an emergency."""

    def __init__(self, scripts: Scripts) -> None:
        self.scripts = scripts

    def all(self) -> list[LockInfo]:
        """Returns every lock by name, including those never taken."""
        with translated():
            rows = _lock_read(self.scripts)
            known = {row[0] for row in rows}
            rows += _lock_read(self.scripts, *missing) if (missing := set(lock_names()) - known) else []
        return sorted(map(_read, rows), key=lambda each: each.name)

    def of_housekeeping(self) -> list[LockInfo]:
        """Returns the locks of the housekeeping jobs, including those never taken."""
        with translated():
            return list(map(_read, _lock_read(self.scripts, *lock_names())))

    def release_of_dead(self, instance: str) -> list[str]:
        """Releases the locks of housekeepers that died: an earlier process of this name, or one of this machine.

        Without it the restart of a single housekeeper that was killed would wait for the end of its own locks. The
        leader's lock ends soon enough. Returns the names of the locks.
        """
        with translated():
            stale = [
                each
                for each in self.of_housekeeping()
                if each.locked and each.name != LEADER and _is_dead(each.owner, instance)
            ]
            return [each.name for each in stale if self.scripts.call("lock_release", each.name, each.token or "")]

    def get(self, name: str) -> LockInfo | None:
        """Returns one lock; None when there is no such lock."""
        with translated():
            [row] = _lock_read(self.scripts, name)
        return _read(row) if name in lock_names() or row[3] else None

    def force(self, name: str, token: str, by: str, reason: str) -> str:
        """Takes a lock from its holder; returns the owner. Raises LockChanged when `token` does not hold it."""
        return self._force(name, token, by, reason, timedelta())

    def step_down(self, by: str, reason: str) -> str:
        """Ends the leader's term; another instance leads next. Raises LockChanged when no instance leads."""
        return self._force(LEADER, "", by, reason, BAR)

    def _force(self, name: str, token: str, by: str, reason: str, bar: timedelta) -> str:
        with translated():
            what, owner = self.scripts.call("lock_force", name, token, by, reason, to_us(bar))
        whom = text(owner)
        if what != b"unlocked":
            raise LockChanged(
                f"lock {name} is held with another token now" if whom else f"lock {name} is not held", lock=name
            )
        log.warning("lock %s was taken from %s", name, whom, extra={"by": by, "reason": reason})
        return whom


def _is_dead(owner: str | None, instance: str) -> bool:
    host, _, pid = (owner or "").rpartition("-")
    if owner == instance or host != socket.gethostname() or not pid.isdigit():
        return owner == instance
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return True
    except (OSError, OverflowError):  # another user's
        return False
    return False


def _read(row: Sequence[str]) -> LockInfo:
    name, token, owner, fence, acquired_at, left, thread = row
    since = whole_or_none(acquired_at)
    return LockInfo(
        name=name,
        token=token or None,
        owner=owner or None,
        fence=whole_or_none(fence),
        acquired_at=None if since is None else instant(since),
        remaining=timedelta(microseconds=int(left)),
        thread_id=whole_or_none(thread),
    )


def lock_acquire(
    scripts: Scripts,
    name: str,
    nonce: str,
    owner: str,
    at_most: timedelta,
    at_least: timedelta,
    thread: int = 0,
    silence: timedelta = timedelta(),
) -> tuple[Taken, str]:
    """Returns whether the lock was taken, and its token (else the holder)."""
    times = to_us(at_most), to_us(at_least), thread, to_us(silence)
    result, token, *_ = scripts.call("lock_acquire", name, nonce, owner, *times)
    return Taken(text(result)), text(token)


def _lock_extend(scripts: Scripts, wanted: Sequence[tuple[FencingToken, Lock]]) -> list[bool]:
    """Extends locks; returns which of them are still held."""
    times = [(token.lock, token.token, to_us(lock.at_most), to_us(lock.silence)) for token, lock in wanted]
    return [bool(kept) for kept in scripts.call_many([("lock_extend", each) for each in times])]


def _lock_read(scripts: Scripts, *names: str) -> list[Sequence[str]]:
    """Returns locks as `lock_read.lua` does; without names all that ever existed."""
    return [tuple(map(text_or_number, row)) for row in scripts.call("lock_read", *names)]
