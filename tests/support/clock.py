"""The clock of tests: it advances only when set."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from firmq.shared.domain.clock import MICROSECONDS, to_us


@dataclass(slots=True)
class FakeClock:
    """The time argument of scripts."""

    now_us: int = 1_800_000_000 * MICROSECONDS

    def script_argument(self) -> str:
        return str(self.now_us)

    def advance(self, by: timedelta) -> None:
        self.now_us += to_us(by)
