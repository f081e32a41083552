"""Processes that handlers started and that outlive their attempt or their executor: ended in any session.

Linux only. A process that has `Children` adopts what its descendants leave behind (PR_SET_CHILD_SUBREAPER), so a daemon
is found among them too. Nothing but a descendant of this process is ever ended.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
import time
from collections.abc import Sequence

from worker.process_tree import descendants, name_of

_PR_SET_CHILD_SUBREAPER = 36
_END_WITHIN = 1.0
"""Seconds until processes that were killed must be gone."""


class Children:
    """The processes below this one; those that were there before stay."""

    def __init__(self) -> None:
        if sys.platform == "linux":
            ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        self._stay = set(descendants(os.getpid()))

    def end_new(self, keep: Sequence[int] = ()) -> list[str]:
        """Kills and reaps all that were started since but `keep` and what is below those; returns their names."""
        if not _has_children():
            return []
        ended: dict[int, str] = {}
        until = time.monotonic() + _END_WITHIN
        while (new := self._new(keep)) and time.monotonic() < until:
            for pid in new:
                ended.setdefault(pid, name_of(pid))
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)
                with contextlib.suppress(ChildProcessError):  # a grandchild, which becomes ours when its parent is gone
                    os.waitpid(pid, os.WNOHANG)
            time.sleep(0.001)
        return [name for name in ended.values() if name]

    def _new(self, keep: Sequence[int]) -> set[int]:
        return set(descendants(os.getpid(), without=keep)) - self._stay


def _has_children() -> bool:
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True
