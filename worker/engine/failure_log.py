"""Logs every attempt that did not succeed, once Redis has its outcome: retries, dead letters, interruptions.

The class of the error is logged, never its message: that may hold data of the task. Dashboard and API show it.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable

from firmq.shared.domain.task import TaskState
from firmq.worker.engine.redis_session import Report

log = logging.getLogger(__name__)

LINES_PER_SECOND = 100
"""Attempts with a line of their own; further ones of the same type and error share a line per second."""
MOST_SUMMARIES = 50
"""Lines that summarize one second; further attempts share the last."""

_EVENTS = {
    "retrying": (logging.WARNING, "🔄 retry scheduled"),
    "failed": (logging.ERROR, "dead letter"),
    "cancelled": (logging.INFO, "attempt cancelled"),
    "scheduled": (logging.INFO, "task suspended"),
}
"""By the state that the task got."""
_RETURNED = {
    "interrupted": (logging.INFO, "attempt interrupted, task returned to its queue"),
    "refused": (logging.WARNING, "task refused by this version of its type, left to another worker"),
}
"""By the outcome of an attempt after which the task is pending."""
_OTHER = ("failed", "failed", "other types", "other errors")


class FailureLog:
    """One line per attempt, and a bounded number of lines per second."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self.monotonic = monotonic
        self._second_ends = 0.0
        self._lines_left = LINES_PER_SECOND
        self._unlogged: Counter[tuple[str, str, str, str]] = Counter()

    def add(self, report: Report) -> None:
        """Logs the outcome of an attempt; nothing for one that completed."""
        if report.ended.state == TaskState.COMPLETED:
            return
        self.summarize(self.monotonic())
        if self._lines_left > 0:
            self._lines_left -= 1
            _log_attempt(report)
        else:
            ended = report.ended
            key = (ended.outcome, ended.state, report.claimed.name, ended.error_type)
            self._unlogged[key if key in self._unlogged or len(self._unlogged) < MOST_SUMMARIES else _OTHER] += 1

    def summarize(self, now: float) -> None:
        """Logs how many attempts of the last second had no line of their own, once that second is over."""
        if now < self._second_ends:
            return
        for (outcome, state, task_type, error), count in self._unlogged.items():
            level, event = _event(outcome, state)
            fields = {
                "task_type": task_type,
                "error_type": error,
                "outcome": outcome,
                "state": state,
                "attempts": count,
            }
            log.log(level, "%s: %d more attempts of %s (%s)", event, count, task_type, error, extra=fields)
        self._unlogged.clear()
        self._second_ends = now + 1
        self._lines_left = LINES_PER_SECOND

    def close(self) -> None:
        """Logs the remaining summary."""
        self.summarize(float("inf"))


def _event(outcome: str, state: str) -> tuple[int, str]:
    """Returns the log level and the words for the task's outcome."""
    return _EVENTS.get(state) or _RETURNED[outcome]


def _log_attempt(report: Report) -> None:
    claimed, ended = report.claimed, report.ended
    level, event = _event(ended.outcome, ended.state)
    delay = None if ended.delay_us is None else ended.delay_us / 1_000_000
    fields = {
        **claimed.log_fields,
        "task_type": claimed.name,
        "queue": claimed.queue.decode(errors="replace"),
        "error_type": ended.error_type,
        "outcome": ended.outcome,
        "state": ended.state,
        "retry_delay": delay,
    }
    after = "" if delay is None else f" in {delay:g} s"
    line = "%s%s: task %s (%s), attempt %d, %s"
    log.log(
        level, line, event, after, claimed.id.decode(), claimed.name, claimed.attempt, ended.error_type, extra=fields
    )
