"""Changes shared files atomically: readers never see a partial file, and concurrent changes are not lost."""

from __future__ import annotations

import fcntl
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path


def change_file(path: Path, change: Callable[[str], str], *, make: bool = False) -> None:
    """Replaces the text of a file by `change(text)` in one step, keeping owner, group and mode.

    A new file is readable by its owner only. Any error, also in `change`, leaves the file unchanged. Raises ValueError
    when owner and group cannot be kept.
    """
    path = path.resolve()
    with _alone(path.parent):
        before = path.stat() if path.exists() or not make else None
        text = change("" if before is None else path.read_text("utf-8"))
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as new:
                if before is not None:
                    _give(handle, path, before)
                new.write(text)
            os.replace(name, path)
        except BaseException:
            os.unlink(name)
            raise


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Locks the folder of the file; the file itself cannot serve as lock because it is replaced."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _give(handle: int, path: Path, like: os.stat_result) -> None:
    """Gives the new file the owner, group and mode of the old one."""
    try:
        mine = os.fstat(handle)
        if (mine.st_uid, mine.st_gid) != (like.st_uid, like.st_gid):
            os.fchown(handle, like.st_uid, like.st_gid)
        os.fchmod(handle, like.st_mode & 0o7777)
    except PermissionError:
        raise ValueError(f"{path} could not keep its owner and group: change it as its owner, or as root") from None
