"""Changes a file that others read and change at the same time: nobody reads half of it, and no change is lost."""

from __future__ import annotations

import fcntl
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path


def change_file(path: Path, change: Callable[[str], str], *, make: bool = False) -> None:
    """Replaces the text by what is made of it, in one step; whose the file is and who may read it stay as they are.

    A file that is made here is for its owner alone. An error, also of `change`, leaves all as it was.
    """
    path = path.resolve()
    with _alone(path.parent):
        before = path.stat() if path.exists() or not make else None
        text = change("" if before is None else path.read_text())
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
        try:
            with os.fdopen(handle, "w") as new:
                if before is not None:
                    _give(handle, path, before)
                new.write(text)
            os.replace(name, path)
        except BaseException:
            os.unlink(name)
            raise


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """While nobody else changes a file in the folder: the folder is locked, since the file itself is replaced."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _give(handle: int, path: Path, like: os.stat_result) -> None:
    """Makes a new file belong to whom the old one belongs, so that whoever could read it still can."""
    try:
        mine = os.fstat(handle)
        if (mine.st_uid, mine.st_gid) != (like.st_uid, like.st_gid):
            os.fchown(handle, like.st_uid, like.st_gid)
        os.fchmod(handle, like.st_mode & 0o7777)
    except PermissionError:
        raise ValueError(f"{path} could not keep its owner and group: change it as its owner, or as root") from None
