"""The prefetch window: many tasks when they are short, none when they are long."""

from __future__ import annotations

AHEAD_SECONDS = 0.02
"""Seconds of work that an executor may have waiting: hides a round trip to Redis without hoarding tasks."""
MOST = 128


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
