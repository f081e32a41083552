"""Log lines, progress and spans of a running attempt."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from firmq.worker.executors.ipc import Assignment

MOST_KEPT = 32
"""Spans of a handler that are kept with its attempt; with their names at most 4 kB."""


@dataclass(slots=True)
class HandlerSpans:
    """The spans that the handler of a traced attempt made: the first are kept with the attempt, all are counted."""

    began_ns: int
    count: int = 0
    kept: list[dict[str, Any]] = field(default_factory=list)

    def add(self, about: dict[str, Any]) -> None:
        self.count += 1
        if len(self.kept) < MOST_KEPT:
            self.kept.append(about)

    def summary(self) -> dict[str, Any]:
        """Returns the spans for the record of the attempt."""
        return {"spans": self.kept, "spans_left_out": self.count - len(self.kept)} if self.kept else {}


class LastLines(deque[str]):
    """The last log lines of an attempt, bounded in bytes of UTF-8."""

    size = 0

    def add(self, line: str, limit: int) -> None:
        """Adds a line, and drops the oldest ones beyond the limit."""
        self.append(line)
        self.size += _size(line)
        while self.size > limit:
            self.size -= _size(self.popleft())


def _size(line: str) -> int:
    return len(line) if line.isascii() else len(line.encode(errors="replace"))


class Recorder:
    """Keeps the last log lines of one attempt and passes on each, and its progress, until the attempt ends.

    `number` identifies the attempt to the callbacks. A thread that outlives its attempt still has the recorder of that
    attempt, so its lines reach no other task.
    """

    __slots__ = (
        "_progress_at",
        "assignment",
        "ended",
        "limit",
        "lines",
        "number",
        "on_line",
        "on_progress",
        "pause",
        "replay",
        "rq_job_end",
        "spans",
    )

    def __init__(
        self,
        number: int,
        limit: int,
        on_line: Callable[[int, str], None],
        on_progress: Callable[[int, float, str], None],
        pause: float = 0.2,
        assignment: Assignment | None = None,
    ) -> None:
        """`assignment` is the attempt's, in an executor."""
        self.assignment = assignment
        self.number = number
        self.limit = limit
        self.on_line = on_line
        self.on_progress = on_progress
        self.pause = pause
        self.lines = LastLines()
        self.ended = False
        self.rq_job_end: bytes | None = None
        """How an RQ job has ended, for `report.lua`."""
        self.spans: HandlerSpans | None = None
        self.replay: Any = None
        """The steps of the task, once the handler of a durable function has asked for one."""
        self._progress_at = 0.0

    def mute(self) -> None:
        """Passes on nothing more: this process was forked by a handler and has no pipes."""
        self.limit = 0
        self.on_line = self.on_progress = _ignore

    def add(self, line: str) -> None:
        """Adds one line."""
        if self.ended:
            return
        self.lines.add(line, self.limit)
        self.on_line(self.number, line)

    def progress(self, fraction: float, message: str) -> None:
        """Passes on the progress, unless the last time was less than `pause` seconds ago."""
        now = time.monotonic()
        if self.ended or (fraction < 1 and now - self._progress_at < self.pause):
            return
        self._progress_at = now
        self.on_progress(self.number, fraction, message)


def _ignore(*event: object) -> None:
    pass
