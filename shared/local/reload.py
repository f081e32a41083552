"""Has the worker load its handlers anew when a Python file changes."""

from __future__ import annotations

import importlib.util
import os
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from firmq.shared.local.source_files import SourceFiles

INTERVAL = 0.1
SETTLED = 0.05
"""Seconds without a change after which the files of one save, or of one checkout of a branch, are complete."""
_SHARE = 25
"""Looking at files takes a twenty-fifth of a processor at most: a folder may hold many."""


class Reloader:
    """Looks for changes when it is called, and requests a reload until it is accepted."""

    def __init__(
        self,
        files: SourceFiles,
        request: Callable[[], bool],
        log: Callable[[str], None],
        monotonic: Callable[[], float] = time.monotonic,
        processor: Callable[[], float] = time.thread_time,
    ) -> None:
        """`request` returns whether the worker got the request: one that starts cannot.

        `processor` measures what a look costs: a busy machine, which interrupts one for long, must not delay the next.
        """
        self._files = files
        self._request = request
        self._log = log
        self._monotonic = monotonic
        self._processor = processor
        self._changed: dict[Path, None] = {}
        self._due = 0.0

    def __call__(self) -> None:
        """Looks for changes if it is time to."""
        if self._monotonic() < self._due:
            return
        began = self._processor()
        changed = self._files.changed()
        self._due = self._monotonic() + max(SETTLED if changed else INTERVAL, _SHARE * (self._processor() - began))
        self._changed |= dict.fromkeys(changed)
        if self._changed and not changed:
            self._reload()

    def _reload(self) -> None:
        for file in self._changed:
            _discard_bytecode(file)
        if self._request():
            self._log(f"{_shown(list(self._changed))} changed: reloading handlers")
            self._changed.clear()


def _discard_bytecode(file: Path) -> None:
    """Removes the compiled form of a file: for Python it is current if size and second of the source are the same."""
    with suppress(NotImplementedError, OSError):  # a Python without a cache tag keeps no compiled files
        Path(importlib.util.cache_from_source(str(file))).unlink(missing_ok=True)


def _shown(files: Sequence[Path]) -> str:
    others = len(files) - 1
    return os.path.relpath(files[0]) + (f" and {others} other{'s' * (others > 1)}" if others else "")
