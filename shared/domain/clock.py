"""Time as the product sees it: instants that decide anything come from Redis, durations from a monotonic clock.

A host's wall clock decides nothing, because one host that runs two minutes fast would end the leases of all
others. Scripts therefore ask Redis for the time themselves; a test hands them an instant instead.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Protocol

MICROSECONDS = 1_000_000
_LATEST = 253_370_764_800 * MICROSECONDS
"""The first moment of the year 9999."""


class Clock(Protocol):
    """What a script is told about the time."""

    def script_argument(self) -> str:
        """The instant for a script in microseconds since 1970, or "" for "ask Redis"."""
        ...


class RedisClock:
    """The clock of production: every script asks the server that it runs in."""

    def script_argument(self) -> str:
        return ""


@dataclass(slots=True)
class FakeClock:
    """The clock of tests: it moves when told to."""

    now_us: int = 1_800_000_000 * MICROSECONDS

    def script_argument(self) -> str:
        return str(self.now_us)

    def advance(self, by: timedelta) -> None:
        self.now_us += to_us(by)


def to_us(duration: timedelta) -> int:
    """A duration in whole microseconds."""
    return (duration.days * 86_400 + duration.seconds) * MICROSECONDS + duration.microseconds


def instant(us: int | float) -> datetime:
    """The aware instant that lies `us` microseconds after 1970; what is beyond all calendars is at their end."""
    return datetime.fromtimestamp(min(max(us, 0), _LATEST) / MICROSECONDS, UTC)


def instant_us(at: datetime) -> int:
    """Microseconds since 1970 of an aware instant."""
    return to_us(at - datetime(1970, 1, 1, tzinfo=UTC))


def monotonic_us() -> int:
    """A clock for durations, the same in every process of one machine; its zero means nothing."""
    return time.monotonic_ns() // 1000
