"""The time of local mode: it jumps to the next thing to do, or it is everybody's."""

from __future__ import annotations

import time
from typing import Protocol


class Time(Protocol):
    """Tells the time in seconds since 1970, and lets it pass."""

    def now(self) -> float: ...

    def sleep(self, seconds: float) -> None: ...


class SteppedTime:
    """Passes when somebody waits, at once: retries after an hour take no time in a test."""

    def __init__(self, now: float | None = None) -> None:
        self.at = time.time() if now is None else now

    def now(self) -> float:
        return self.at

    def sleep(self, seconds: float) -> None:
        self.at += seconds


class WallTime:
    """Passes as it does for everybody."""

    def now(self) -> float:
        return time.time()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)
