"""Finds changed Python files below some folders.

By polling: it needs no dependency, sees changes on network drives and in containers' volumes, and knows no limit of
watched folders. A thousand files take a few milliseconds, and a pass waits in proportion to what the last one took.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path

Stamp = tuple[int, int, int]
"""The modification time of a file, its size, and its inode: an editor may replace the file."""
EXCLUDED = frozenset({"__pycache__", "node_modules", "site-packages"})


class SourceFiles:
    """The Python files of some folders and single files, without hidden folders and virtual environments."""

    def __init__(self, roots: Iterable[Path]) -> None:
        self.roots = tuple(roots)
        self._stamps = self._read()

    def changed(self) -> list[Path]:
        """Returns the files that were written, added or removed since the last call."""
        before, self._stamps = self._stamps, self._read()
        return sorted({Path(path) for path, _ in before.items() ^ self._stamps.items()})

    def _read(self) -> Mapping[str, Stamp]:
        stamps = {}
        for root in self.roots:
            files = _files(str(root)) if root.is_dir() else (str(root),)
            for path in files:
                with suppress(OSError):  # removed meanwhile
                    found = os.stat(path)
                    stamps[path] = (found.st_mtime_ns, found.st_size, found.st_ino)
        return stamps


def _files(folder: str, top: bool = True) -> Iterator[str]:
    """Yields the paths of Python files below a folder."""
    try:
        with os.scandir(folder) as found:
            entries = list(found)
    except OSError:
        return
    if not top and any(entry.name == "pyvenv.cfg" for entry in entries):
        return
    for entry in entries:
        if entry.name.endswith(".py"):
            yield entry.path
        elif _is_searched(entry):
            yield from _files(entry.path, top=False)


def _is_searched(entry: os.DirEntry[str]) -> bool:
    is_folder = entry.name not in EXCLUDED and entry.is_dir(follow_symlinks=False)
    return is_folder and not entry.name.startswith(".")
