"""Exceptions by which a handler controls its task, and by which it is stopped."""

from __future__ import annotations

from datetime import timedelta


class RetryLater(Exception):
    """Requests a retry after `delay` (seconds or a timedelta) instead of the policy's delay; it counts as a retry.

    A longer delay than MAX_DELAY is cut to that.
    """

    def __init__(self, delay: float | timedelta, reason: str = "the handler asked for another try") -> None:
        super().__init__(reason)
        self.delay = delay if isinstance(delay, timedelta) else timedelta(seconds=delay)
        if self.delay < timedelta(0):
            raise ValueError(f"RetryLater needs a delay of at least 0 seconds, not {delay}")


class GiveUp(Exception):
    """Moves the task to the dead letters at once: no retry can succeed."""


class TimeLimitExceeded(BaseException):
    """Raised inside a handler when its time limit is over.

    A BaseException, so that `except Exception` does not swallow it; `finally` blocks run. A handler that continues is
    killed shortly after.
    """


class TaskCancelled(BaseException):
    """Raised inside a handler when its task was cancelled."""
