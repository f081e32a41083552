"""Locks for handlers: for work that must not run twice at once, over all workers.

They are housekeeping's (`shared/stores/locks.py`): renewed while held, fenced, and freed when their holder dies.
Outside of a worker (a test that calls a handler, local mode) every lock is free.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from datetime import timedelta
from functools import cache
from typing import TYPE_CHECKING, Literal, TypeVar

from firmq.shared.domain.lock import Lock, OnError
from firmq.shared.errors import LockLost, LockTaken
from firmq.shared.stores.locks import HANDLERS, HeldLock, Locks, NoLocks, RedisLocks
from firmq.worker.handlers.context import current

if TYPE_CHECKING:
    from firmq.shared.config.stores import Stores

T = TypeVar("T")
_NAME = re.compile(r"[A-Za-z0-9._-]{1,90}")
SHORTEST, LONGEST = 1.0, 3600.0


@contextmanager
def lock(
    name: str, *, at_most: float = 30.0, wait: float = 0.0, on_error: Literal["skip", "run"] = "skip"
) -> Iterator[HeldLock]:
    """Holds the lock of this name, which one task at a time can hold over all workers.

    Raises LockTaken when it is not available within `wait` seconds, and LockLost at the end when it was lost meanwhile;
    `check()` of the lock raises it sooner, and `term` is a number that grows with every holder, for stores that can
    refuse a lower one. `at_most` is for how many seconds a dead holder keeps it. When Redis does not answer it is not
    available either, unless `on_error` is "run".
    """
    with _tried(name, at_most, wait, on_error) as held:
        if held is None:
            raise LockTaken(f"lock {name} is held by another task, or Redis does not answer", lock=name)
        yield held


def execute_with_lock(
    name: str,
    action: Callable[[], T],
    *,
    at_most: float = 30.0,
    wait: float = 0.0,
    on_error: Literal["skip", "run"] = "skip",
) -> T | None:
    """Runs an action under a lock and returns its result; None, at once, when the lock is not available."""
    with _tried(name, at_most, wait, on_error) as held:
        return action() if held else None


@contextmanager
def _tried(name: str, at_most: float, wait: float, on_error: str) -> Iterator[HeldLock | None]:
    if not _NAME.fullmatch(name):
        raise ValueError(f"the name of a lock is 1 to 90 characters out of A-Z a-z 0-9 . _ -, got {name[:100]!r}")
    if not SHORTEST <= at_most <= LONGEST:
        raise ValueError(f"at_most must be from {SHORTEST:g} to {LONGEST:g} seconds, got {at_most}")
    wanted = Lock(
        name=f"{HANDLERS}{name}",
        at_most=timedelta(seconds=at_most),
        wait=timedelta(seconds=wait),
        on_error=OnError(on_error),
    )
    task = current.get()
    with task.open_locks(f"task {task.id}", name) if task else nullcontext(NoLocks()) as locks:
        held = locks.acquire(wanted)
        if held is None:
            yield None
            return
        try:
            yield held
        finally:
            in_time = held.trusted
            held.release()
        if not in_time:
            raise LockLost(lock=name)


@contextmanager
def in_redis(owner: str, name: str) -> Iterator[Locks]:
    """Yields locks on a connection of their own, open while one of this name is held: executors have none.

    With several stores, the name of a lock decides where it is.
    """
    from firmq.shared.redis.client import connect
    from firmq.shared.redis.scripts import Scripts

    with connect(_address(name), name="lock") as redis:
        locks = RedisLocks(Scripts(redis), owner)
        try:
            yield locks
        finally:
            locks.stop()


def _address(name: str) -> str:
    return _stores().of_name(name).store_url


@cache
def _stores() -> Stores:
    from firmq.shared.config.settings import load

    return load().stores
