"""Processes that a handler started and that outlive its attempt: they are ended, whatever session they are in.

Linux only. This process adopts what its descendants leave behind (PR_SET_CHILD_SUBREAPER), so a daemon is found among
its children too. Nothing but a descendant of this process is ever ended.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
import time

from worker.executors.process_tree import descendants, name_of

_PR_SET_CHILD_SUBREAPER = 36
_END_WITHIN = 1.0
"""Seconds until processes that were killed must be gone."""


class Children:
    """The processes below this one; those of before the first task stay, with all that they start."""

    def __init__(self) -> None:
        if sys.platform == "linux":
            ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        self._stay = set(descendants(os.getpid()))

    def end_new(self) -> list[str]:
        """Kills and reaps all that were started since, and returns their names."""
        if sys.platform != "linux" or not _has_children():
            return []
        ended: dict[int, str] = {}
        until = time.monotonic() + _END_WITHIN
        while (new := descendants(os.getpid(), without=self._stay)) and time.monotonic() < until:
            for pid in new:
                if pid not in ended:
                    ended[pid] = name_of(pid)
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)
                with contextlib.suppress(ChildProcessError):  # a grandchild, which becomes ours when its parent is gone
                    os.waitpid(pid, os.WNOHANG)
            time.sleep(0.001)
        self._stay |= set(new)  # what cannot be ended holds no later task up
        return [name for name in ended.values() if name]


def _has_children() -> bool:
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True
