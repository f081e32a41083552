"""Whether a worker lives: not whether its process exists, but whether it claims and reports.

A worker that does not live is restarted by whoever asks. A Redis that is away is no reason for that, so trying counts.
"""

from __future__ import annotations

import time
from collections.abc import Callable

STILL = 30.0
"""Seconds that a part may be silent which gives a sign of life every few."""
SLOW_START = 180.0
"""Seconds in which some executor has imported the handlers."""


class Liveness:
    """When each part of a worker last did what it is there for; they note it here, and any thread may ask."""

    def __init__(self, lease: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock = clock
        # An idle worker asks for tasks every four seconds; one with all hands full extends its leases.
        self.talk_within = STILL + lease / 3
        now = clock()
        self.passed_at = now
        """The loop went round."""
        self.talked_at = now
        """Redis answered or was found to be away, or there was nothing to ask because no executor was up."""
        self.announced_at = now
        """Everybody was told that this worker is there, or Redis was found to be away."""
        self.manned_at = now
        """Some executor was up."""

    def troubles(self) -> list[str]:
        """What has not happened for too long, in words; nothing when the worker lives."""
        now = self.clock()
        signs = (
            (now - self.passed_at, STILL, "its loop has not gone round"),
            (now - self.talked_at, self.talk_within, "it has not claimed, reported or extended anything"),
            (now - self.announced_at, STILL, "it has not told anybody that it is there"),
            (now - self.manned_at, SLOW_START, "no executor has been up"),
        )
        return [f"{what} for {silent:.0f} s" for silent, most, what in signs if silent > most]
