"""Repairs an append-only file that a power loss has left with zeros at its end, with which no server starts.

A file system may keep the new length of a file and lose what was written there. Redis reads a file that was cut off
in the middle of a command and says so, but refuses zeros; `redis-check-aof --fix` would cut them off, as this does.
"""

from __future__ import annotations

import os
import re
import shutil
import time
from pathlib import Path

_BLOCK = 1 << 16
_NUMBER = re.compile(r"\.(\d+)\.incr\.aof$")


def repair(folder: Path) -> str | None:
    """Cuts zeros off the end of the file that a server in `folder` wrote last, after copying it; None: there are none.

    Returns what was done, in words. Call it while no server runs there.
    """
    file = _last_written(folder)
    if file is None or (size := file.stat().st_size) == (wanted := _without_zeros(file)):
        return None
    copy = folder / f"{file.name}.damaged-{time.strftime('%Y%m%d-%H%M%S')}"
    shutil.copy2(file, copy)
    os.truncate(file, wanted)
    return (
        f"the append-only file ended in {size - wanted} zero bytes, as after a power loss: they were cut off "
        f"({file} is kept as {copy}), and the writes of the last second or two before it are lost"
    )


def _last_written(folder: Path) -> Path | None:
    """Since version 7.0 a server writes to the numbered file with the highest number; one file was all before."""
    numbered = [
        (int(found[1]), each) for each in folder.glob("appendonlydir/*") if (found := _NUMBER.search(each.name))
    ]
    if numbered:
        return max(numbered)[1]
    single = folder / "appendonly.aof"
    return single if single.exists() else None


def _without_zeros(file: Path) -> int:
    """The size of the file up to its last byte that is not zero."""
    with file.open("rb") as data:
        end = data.seek(0, os.SEEK_END)
        while end:
            begin = max(0, end - _BLOCK)
            data.seek(begin)
            kept = data.read(end - begin).rstrip(b"\0")
            if kept:
                return begin + len(kept)
            end = begin
    return 0
