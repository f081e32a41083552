"""What attempts leave behind in an executor's process: found, undone where that is possible, told to the worker."""

from __future__ import annotations

import logging
import threading
from _thread import _count as thread_count
from collections.abc import Callable, Sequence

from worker.process_state import Change, ProcessState

THOROUGH_US = 1000
"""Microseconds that handlers run until a thorough check is due, which costs ten; an idle executor checks before."""
_MOST_TOLD = 1000
_MOST_NAMES = 10

Tell = Callable[[str, str, int, bool], None]
"""Tells the worker: the handler, what it left behind, the level for the log, and whether this executor ends for it."""


class Leftovers:
    """Decides after each attempt whether this process can run another."""

    def __init__(self, tell: Tell) -> None:
        self._tell = tell
        self._state = ProcessState()
        self._threads = set(threading.enumerate())
        self._thread_count = thread_count()
        self._ran_us = 0
        self._unchecked: dict[str, None] = {}
        self._told: set[tuple[str, str]] = set()

    def fit_after(self, handler: str, run_us: int) -> bool:
        """Whether another task can run here after an attempt of this handler."""
        self._ran_us += run_us
        self._unchecked[handler] = None
        changes = self._state.quick.restore()
        if changes and not self._settled(handler, changes):
            return False
        return self._ran_us < THOROUGH_US or self._fit_thoroughly()

    def fit_when_idle(self) -> bool:
        """The same for what was put off."""
        return not self._unchecked or self._fit_thoroughly()

    def _fit_thoroughly(self) -> bool:
        handlers = " or ".join(sorted(self._unchecked)[:_MOST_NAMES])
        self._unchecked.clear()
        self._ran_us = 0
        self._look_at_threads(handlers)
        changes = self._state.slow.restore()
        return not changes or self._settled(handlers, changes)

    def _settled(self, handler: str, changes: Sequence[Change]) -> bool:
        """Whether all is undone; the worker is told of what is not, and once of what is."""
        if stays := [change.description for change in changes if not change.undone]:
            self._tell(handler, ", ".join(stays), logging.WARNING, True)
            return False
        if self._is_news(handler, ", ".join(change.name for change in changes)):
            what = ", ".join(change.description for change in changes)
            self._tell(handler, f"{what}, which is undone", logging.WARNING, False)
        return True

    def _look_at_threads(self, handler: str) -> None:
        """Tells once of threads that run on: pools and exporters do so for good reasons, so the executor stays."""
        count = thread_count()
        if count > self._thread_count:
            now = set(threading.enumerate())
            new = sorted(each.name for each in now - self._threads)
            self._threads = now
            if new and self._is_news(handler, "threads"):
                names = ", ".join(new[:_MOST_NAMES])
                self._tell(handler, f"threads, which run on: {names}", logging.INFO, False)
        self._thread_count = count

    def _is_news(self, handler: str, what: str) -> bool:
        """Whether this was not told before; a handler that does it each time fills no log."""
        if (handler, what) in self._told or len(self._told) >= _MOST_TOLD:
            return False
        self._told.add((handler, what))
        return True
