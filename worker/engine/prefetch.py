"""How many tasks to claim ahead of their start: many when they are short, none when they are long."""

from __future__ import annotations

import time
from collections.abc import Callable

AHEAD_SECONDS = 0.02
"""Seconds of work that an executor may have waiting: hides a round trip to Redis without hoarding tasks."""
MOST = 128
RESERVE_SECONDS = 0.05
"""Seconds within which the slots are freed for which a concurrent lane holds tasks in reserve."""
_PERIOD = 0.25
"""Seconds of the two periods in which ended tasks are counted; tasks that began together end together."""


class PrefetchWindow:
    """Estimates run times from recent tasks; a long one counts at once, short ones slowly."""

    def __init__(self) -> None:
        self.seconds: float | None = None

    def learn(self, run_seconds: float) -> None:
        """Takes one ended task into account."""
        if self.seconds is None:
            self.seconds = run_seconds
            return
        weight = 0.5 if run_seconds > 4 * self.seconds + 0.001 else 0.05
        self.seconds += weight * (run_seconds - self.seconds)

    def window(self) -> int:
        """Returns how many tasks an executor may hold, including the running one."""
        if self.seconds is None:
            return 1
        return max(1, min(MOST, int(AHEAD_SECONDS / max(self.seconds, 1e-6))))


class Reserve:
    """Estimates how many slots will be free in a moment, from the tasks that ended in the last one.

    Run times would not show it: beside a thousand long tasks, only the short ones in a single slot finish.
    """

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self.monotonic = monotonic
        self._period_began_at = -float("inf")
        self._count = self._count_before = 0

    def learn(self) -> None:
        """Takes one ended task into account."""
        self._turn()
        self._count += 1

    def size(self) -> int:
        """Returns how many tasks to hold beside those that run."""
        seconds = _PERIOD + self._turn()
        return int(RESERVE_SECONDS * (self._count + self._count_before) / seconds)

    def _turn(self) -> float:
        """Begins a new period if the last is over; returns for how many seconds the present one lasts."""
        now = self.monotonic()
        lasts = now - self._period_began_at
        if lasts < _PERIOD:
            return lasts
        self._count_before = self._count if lasts < 2 * _PERIOD else 0
        self._count, self._period_began_at = 0, now
        return 0.0
