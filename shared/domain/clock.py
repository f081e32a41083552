"""Time: instants that decide anything come from Redis, durations from a monotonic clock.

A host's wall clock decides nothing: one host that is two minutes fast would end the leases of all others. Scripts
therefore read the time of Redis themselves; tests pass them an instant instead.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import Protocol

MICROSECONDS = 1_000_000
_LATEST = 253_370_764_800 * MICROSECONDS
"""The first instant of the year 9999."""


class Clock(Protocol):
    """The time argument of a script."""

    def script_argument(self) -> str:
        """Returns the instant for a script in microseconds since 1970, or "" to use the time of Redis."""
        ...


class RedisClock:
    """The clock of production: every script uses the time of its Redis server."""

    def script_argument(self) -> str:
        return ""


def to_us(duration: timedelta) -> int:
    """Returns a duration in whole microseconds."""
    return (duration.days * 86_400 + duration.seconds) * MICROSECONDS + duration.microseconds


def instant(us: int | float) -> datetime:
    """Returns the aware instant `us` microseconds after 1970, limited to the years 1 to 9999."""
    return datetime.fromtimestamp(min(max(us, 0), _LATEST) / MICROSECONDS, UTC)


def instant_us(at: datetime) -> int:
    """Returns the microseconds since 1970 of an aware instant."""
    return to_us(at - datetime(1970, 1, 1, tzinfo=UTC))


def monotonic_us() -> int:
    """Returns a clock for durations, the same in every process of one machine; its zero is arbitrary."""
    return time.monotonic_ns() // 1000
