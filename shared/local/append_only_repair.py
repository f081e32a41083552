"""Repairs an append-only file that ends in zeros after a power loss; no server starts with such a file.

A file system may keep the new length of a file and lose the data. Redis accepts a truncated file, with a warning, but
refuses zeros; `redis-check-aof --fix` removes them, as this module does.
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
    """Copies the file that a server in `folder` wrote last, and removes zeros at its end.

    Returns a description of the repair, or None if there was none. Call it while no server runs there.
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
    """Returns the file that is written to: since 7.0 the one with the highest number, before that the only one."""
    numbered = [
        (int(found[1]), each) for each in folder.glob("appendonlydir/*") if (found := _NUMBER.search(each.name))
    ]
    if numbered:
        return max(numbered)[1]
    single = folder / "appendonly.aof"
    return single if single.exists() else None


def _without_zeros(file: Path) -> int:
    """Returns the size of the file in bytes, without zeros at its end."""
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
