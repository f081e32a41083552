"""How many tasks to claim ahead: many when they are short, none when they are not."""

from __future__ import annotations

AHEAD_SECONDS = 0.02
"""Work that an executor may have before it: enough to hide a round trip to Redis, short enough not to hoard."""
MOST = 128


class PrefetchWindow:
    """Learns how long tasks take, from those that ended lately; a long one counts at once, short ones slowly."""

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
        """How many tasks an executor may hold, the one that it runs included."""
        if self.seconds is None:
            return 1
        return max(1, min(MOST, int(AHEAD_SECONDS / max(self.seconds, 1e-6))))
