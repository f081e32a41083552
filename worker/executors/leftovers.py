"""Finds changes that attempts leave in an executor's process, undoes them where possible, and reports them."""

from __future__ import annotations

import importlib
import logging
import sys
import threading
from _thread import _count as thread_count
from collections.abc import Callable, Sequence
from typing import Any

from firmq.worker.executors import handlers_loop, interpreter_state
from firmq.worker.executors.children import Children
from firmq.worker.executors.process_state import Change, Group, ProcessState

QUICK_US = 100
"""Microseconds of run time until the quick check is due, which takes four; an executor that is idle for a millisecond
checks earlier."""
THOROUGH_US = 1000
"""The same for the thorough check, which takes ten."""
RARE_US = 20_000
"""The same for the state of the interpreter, which takes sixty: the most that short attempts run before it."""
_MOST_REPORTED = 1000
_MOST_NAMES = 10

_import_system: dict[str, Any] = vars(vars(importlib)["_bootstrap"])
_find_and_load = _import_system["_find_and_load"]
Report = Callable[[str, str, int, bool], None]
"""Reports to the worker: the handler, its leftovers, the log level, and whether this executor ends."""


class Leftovers:
    """Decides after each attempt whether this process can run another."""

    def __init__(self, tell: Report, own_threads: str | None = None) -> None:
        """Threads whose names begin with `own_threads` are the executor's own."""
        self._report = tell
        self._own_threads = own_threads
        self._state = ProcessState()
        self._interpreter = Group(interpreter_state.properties())
        self._keep_what_imports_change()
        self._children = Children()
        self._threads = set(threading.enumerate())
        self._thread_count = thread_count()
        self._ran_us = self._ran_quick_us = self._ran_rare_us = 0
        self._unchecked: dict[str, None] = {}
        self._reported: set[tuple[str, str]] = set()

    def fit_after(self, handler: str, run_us: int) -> bool:
        """Returns whether another task can run here after an attempt of this handler."""
        self._ran_us += run_us
        self._ran_quick_us += run_us
        self._unchecked[handler] = None
        if self._ran_quick_us < QUICK_US:
            return True
        if not self._fit_quickly():
            return False
        return self._ran_us < THOROUGH_US or self._fit_thoroughly(and_rarely=run_us >= THOROUGH_US)

    def fit_when_idle(self) -> bool:
        """Returns the same after the deferred checks."""
        return not self._unchecked or (self._fit_quickly() and self._fit_thoroughly(and_rarely=True))

    def _fit_quickly(self) -> bool:
        self._ran_quick_us = 0
        changes = self._state.quick.restore()
        return not changes or self._all_undone(self._handlers(), changes)

    def _handlers(self) -> str:
        return " or ".join(sorted(self._unchecked)[:_MOST_NAMES])

    def _fit_thoroughly(self, and_rarely: bool = False) -> bool:
        handlers = self._handlers()
        self._ran_rare_us += self._ran_us
        self._ran_us = 0
        self._look_at_threads(handlers)
        if not self._end_children(handlers):
            return False
        changes = self._state.slow.restore()
        if and_rarely or self._ran_rare_us >= RARE_US:
            self._ran_rare_us = 0
            self._unchecked.clear()
            changes += self._interpreter.restore()
            interpreter_state.seed_anew()
        return not changes or self._all_undone(handlers, changes)

    def _all_undone(self, handler: str, changes: Sequence[Change]) -> bool:
        """Returns whether all is undone; reports each change that is not, and once each that is."""
        if stays := [change.description for change in changes if not change.undone]:
            self._report(handler, ", ".join(stays), logging.WARNING, True)
            return False
        if self._is_new(handler, ", ".join(change.name for change in changes)):
            what = ", ".join(change.description for change in changes)
            self._report(handler, f"{what} (undone)", logging.WARNING, False)
        return True

    def _look_at_threads(self, handler: str) -> None:
        """Reports running threads once: pools and exporters have good reasons, so the executor stays."""
        count = thread_count()
        if count > self._thread_count:
            now = set(threading.enumerate())
            new = sorted(each.name for each in now - self._threads if not self._is_own(each))
            self._threads = now
            if new and self._is_new(handler, "threads"):
                names = ", ".join(new[:_MOST_NAMES])
                self._report(handler, f"threads that still run: {names}", logging.INFO, False)
        self._thread_count = count

    def report_calls(self, handler: str) -> None:
        """Reports calls in threads that an attempt has left running, once."""
        if self._is_new(handler, handlers_loop.CALLS_LEFT):
            self._report(handler, handlers_loop.CALLS_LEFT, logging.INFO, False)

    def _is_own(self, thread: threading.Thread) -> bool:
        return self._own_threads is not None and thread.name.startswith(self._own_threads)

    def _end_children(self, handlers: str) -> bool:
        """Ends processes that were left; returns whether another task can run then."""
        ended, missed = self._children.end_new(), self._children.missed
        if missed or (ended and self._is_new(handlers, "processes")):
            names = ", ".join(ended[:_MOST_NAMES])
            self._report(handlers, f"processes (killed): {names}", logging.WARNING, missed)
        return not missed

    def _is_new(self, handler: str, what: str) -> bool:
        """Returns whether this was not reported before, so that a handler cannot flood the log."""
        if (handler, what) in self._reported or len(self._reported) >= _MOST_REPORTED:
            return False
        self._reported.add((handler, what))
        return True

    def _keep_what_imports_change(self) -> None:
        """Keeps changes that modules make once, at their import; no public API sees both ends of an import."""
        importing = threading.local()

        def find_and_load(*arguments: Any) -> Any:
            if vars(importing):  # within another import
                return _find_and_load(*arguments)
            changed, known, importing.now = self._interpreter.changed(), len(sys.modules), True
            try:
                return _find_and_load(*arguments)
            finally:
                del importing.now
                if len(sys.modules) != known:
                    self._interpreter = Group([changed.get(each.name, each) for each in interpreter_state.properties()])

        # Python leaves its own functions out of tracebacks, by their file.
        find_and_load.__code__ = find_and_load.__code__.replace(co_filename=_find_and_load.__code__.co_filename)
        _import_system["_find_and_load"] = find_and_load
