"""Makes the worker reload its handlers when a Python file changes."""

from __future__ import annotations

import importlib.util
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

EXCLUDED = frozenset({"__pycache__", "node_modules", "site-packages"})
SETTLED = 50
"""Milliseconds without a change after which the files of one save, or of one checkout of a branch, are complete."""
_AGAIN = 0.1
"""Seconds after which a reload is requested again from a worker that could not take it."""


class OwnFiles:
    """The Python files of some folders and single files, without hidden folders and installed packages."""

    def __init__(self, places: Sequence[Path]) -> None:
        self.places = [each for each in places if each.exists()]

    @property
    def folders(self) -> list[Path]:
        """Returns the folders to watch: an editor may replace a file, and the new one is seen in its folder only."""
        return [each if each.is_dir() else each.parent for each in self.places]

    def __call__(self, change: object, path: str) -> bool:
        """Returns whether a changed file is one of them."""
        return path.endswith(".py") and any(_has(place, Path(path)) for place in self.places)


def _has(place: Path, file: Path) -> bool:
    if not file.is_relative_to(place):
        return False
    return not any(each in EXCLUDED or each.startswith(".") for each in file.relative_to(place).parts)


@contextmanager
def reloading(files: OwnFiles, request: Callable[[], bool], log: Callable[[str], None]) -> Iterator[None]:
    """Requests a reload after each change while the context lasts. `request` returns whether the worker got it."""
    ended = threading.Event()
    thread = threading.Thread(target=_watch, args=(files, request, log, ended), daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()


def _watch(files: OwnFiles, request: Callable[[], bool], log: Callable[[str], None], ended: threading.Event) -> None:
    from watchfiles import watch  # of the extra `local`

    try:
        for changes in watch(*files.folders, watch_filter=files, step=SETTLED, stop_event=ended, rust_timeout=500):
            changed = sorted({Path(path) for _, path in changes})
            for file in changed:
                _discard_bytecode(file)
            while not request():
                if ended.wait(_AGAIN):
                    return
            log(f"{_shown(changed)} changed: reloading handlers")
    except OSError as error:  # such as the limit of watched folders
        log(f"files are not watched any more, so start again after changes of handlers: {error}")


def _discard_bytecode(file: Path) -> None:
    """Removes the compiled form of a file: for Python it is current if size and second of the source are the same."""
    with suppress(NotImplementedError, OSError):  # a Python without a cache tag keeps no compiled files
        Path(importlib.util.cache_from_source(str(file))).unlink(missing_ok=True)


def _shown(files: Sequence[Path]) -> str:
    others = len(files) - 1
    return os.path.relpath(files[0]) + (f" and {others} other{'s' * (others > 1)}" if others else "")
