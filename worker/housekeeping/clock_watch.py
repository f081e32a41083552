"""Detects that Redis' clock was set back, by the monotonic clock of this process."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

log = logging.getLogger(__name__)

TOLERANCE = 5.0
"""Seconds that two readings may differ by: an answer of Redis may have been on its way for two."""


class ClockWatch:
    """Compares successive readings of Redis' clock."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self.monotonic = monotonic
        self._ahead: float | None = None
        self._behind_until = 0.0

    def behind(self, now_us: int) -> float:
        """Returns for how many more seconds tasks scheduled before Redis' clock was set back are late."""
        now = self.monotonic()
        ahead = now_us / 1_000_000 - now
        if self._ahead is not None and abs(step := ahead - self._ahead) > TOLERANCE:
            self._behind_until = max(self._behind_until, now) - step
            log.error(
                "Redis' clock was set %s by %.0f s%s",
                "back" if step < 0 else "forward",
                abs(step),
                ": tasks scheduled before are late by as much" if step < 0 else "",
                extra={"clock_step_seconds": round(step, 1)},
            )
        self._ahead = ahead
        return max(0.0, self._behind_until - now)
