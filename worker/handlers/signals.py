"""How a handler steers its task, and how it is stopped."""

from __future__ import annotations

from datetime import timedelta


class RetryLater(Exception):
    """Try again after `delay` (seconds or a timedelta) instead of the policy's delay; it counts as a retry.

    No later than MAX_DELAY allows: a longer one is cut to that.
    """

    def __init__(self, delay: float | timedelta, reason: str = "the handler asked for another try") -> None:
        super().__init__(reason)
        self.delay = delay if isinstance(delay, timedelta) else timedelta(seconds=delay)
        if self.delay < timedelta(0):
            raise ValueError(f"RetryLater needs a delay of at least 0 seconds, not {delay}")


class GiveUp(Exception):
    """To the dead letters at once: no other try can succeed."""


class TimeLimitExceeded(BaseException):
    """Raised inside a handler when its time limit is over.

    A BaseException, so that `except Exception` does not swallow it; `finally` blocks run. A handler that goes on all
    the same is killed shortly after.
    """


class TaskCancelled(BaseException):
    """Raised inside a handler when somebody cancelled its task."""
