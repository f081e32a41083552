"""What all housekeeping jobs have in common."""

from __future__ import annotations

from datetime import timedelta
from typing import Protocol


class HousekeepingJob(Protocol):
    """One job: it does a bounded piece of work and says how much it did."""

    name: str
    interval: timedelta

    def run(self) -> int:
        """One round; how many things it put right. Bounded, so that no round holds Redis for long."""
        ...
