"""Liveness of a worker: whether it claims and reports, not just whether its process exists.

A worker that is not live is restarted by its supervisor. An unreachable Redis is no reason for that, so a try counts.
"""

from __future__ import annotations

import time
from collections.abc import Callable

STILL = 30.0
"""Seconds without a signal after which a periodic part counts as stuck."""
SLOW_START = 180.0
"""Seconds in which some executor has imported the handlers."""


class Liveness:
    """When each part of a worker last made progress; the parts record it here, and any thread may read it."""

    def __init__(self, lease: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock = clock
        # An idle worker claims every four seconds; a busy one extends its leases.
        self.talk_within = STILL + lease / 3
        now = clock()
        self.passed_at = now
        """Last iteration of the loop."""
        self.talked_at = now
        """Last time Redis answered or was unreachable, or no request was due because no executor was up."""
        self.announced_at = now
        """Last heartbeat that was stored, or failed because Redis was unreachable."""
        self.manned_at = now
        """Last time an executor of each kind was up."""

    def troubles(self) -> list[str]:
        """Describes the activity that is overdue; empty while the worker is live."""
        now = self.clock()
        signs = (
            (now - self.passed_at, STILL, "its loop has not run"),
            (now - self.talked_at, self.talk_within, "it has not claimed, reported or extended anything"),
            (now - self.announced_at, STILL, "it has sent no heartbeat"),
            (now - self.manned_at, SLOW_START, "no executor, or none of one kind, has been up"),
        )
        return [f"{what} for {silent:.0f} s" for silent, most, what in signs if silent > most]
