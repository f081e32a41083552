"""A lock: its object and duration, the result of a try to take it, and the proof that it is held."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum


class OnError(StrEnum):
    """The behavior when Redis does not answer a request for a lock."""

    SKIP = "skip"
    RUN = "run"


class Taken(StrEnum):
    """Outcome of a try to take a lock.

    Cooldown: too soon after the last run; blocked: taken away from this owner; full: too many names exist.
    """

    ACQUIRED = "acquired"
    BUSY = "busy"
    COOLDOWN = "cooldown"
    BLOCKED = "blocked"
    FULL = "full"
    ERROR = "error"


@dataclass(frozen=True, slots=True, kw_only=True)
class Lock:
    """The locked object, and the length of the lock.

    `at_most` is its life without a renewal: the cost of a dead holder. `silence`, if given, is the shorter time without
    a renewal after which another instance may take it; until one does, a slow holder keeps it. `at_least` is its
    cooldown: how long it stays taken even when its holder is done sooner, so that three instances do not do every
    second's work three times a second. `wait` is how long to try; 0 means that a run is skipped.
    """

    name: str
    at_most: timedelta
    silence: timedelta = timedelta()
    at_least: timedelta = timedelta()
    wait: timedelta = timedelta()
    on_error: OnError = OnError.SKIP

    @property
    def lease(self) -> timedelta:
        """Returns the time without a renewal for which no other instance takes it."""
        return self.silence or self.at_most


@dataclass(frozen=True, slots=True)
class FencingToken:
    """The proof of a lock that a step that changes data carries. The empty one is for work without locks."""

    lock: str = ""
    token: str = ""


NO_LOCK = FencingToken()
"""The token of work without locks."""
