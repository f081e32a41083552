"""Processes that a handler started and that outlive its attempt: they are ended, whatever session they are in.

Linux only. This process adopts what its descendants leave behind (PR_SET_CHILD_SUBREAPER), so a daemon is
found among its children too. Nothing but a descendant of this process is ever ended.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
import time
from collections import defaultdict
from pathlib import Path

_PR_SET_CHILD_SUBREAPER = 36
_END_WITHIN = 1.0
"""Seconds until processes that were killed must be gone."""


class Children:
    """The processes below this one; those of before the first task stay."""

    def __init__(self) -> None:
        if sys.platform == "linux":
            ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        self._stay = set(_descendants())

    def end_new(self) -> list[str]:
        """Kills and reaps all that were started since, and returns their commands."""
        if not _has_children():
            return []
        ended: dict[int, str] = {}
        until = time.monotonic() + _END_WITHIN
        while (new := _descendants().keys() - self._stay) and time.monotonic() < until:
            for pid in new:
                ended.setdefault(pid, _command(pid))
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)
                with contextlib.suppress(ChildProcessError):  # a grandchild, which becomes ours when its parent is gone
                    os.waitpid(pid, os.WNOHANG)
            time.sleep(0.001)
        return [command for command in ended.values() if command]


def _has_children() -> bool:
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def _descendants() -> dict[int, int]:
    """Every process below this one, and its parent."""
    below: dict[int, list[int]] = defaultdict(list)
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            below[int((folder / "stat").read_text().rpartition(")")[2].split()[1])].append(int(folder.name))
    found: dict[int, int] = {}
    parents = [os.getpid()]
    while parents:
        parent = parents.pop()
        for child in below[parent]:
            if child not in found:
                found[child] = parent
                parents.append(child)
    return found


def _command(pid: int) -> str:
    """Its name; empty for one that has ended and only waits to be reaped."""
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return ""
    return "" if status.rpartition(")")[2].split()[0] == "Z" else status.partition("(")[2].rpartition(")")[0]
