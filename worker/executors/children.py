"""Ends processes that a handler started and that outlive its attempt, in any session.

Linux only. This process adopts orphans of its descendants (PR_SET_CHILD_SUBREAPER), so a daemon is found among its
children too. Only descendants of this process are ended.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections.abc import Collection
from multiprocessing import forkserver, resource_tracker

from firmq.worker.executors.process_tree import descendants, name_of

_PR_SET_CHILD_SUBREAPER = 36
_END_WITHIN = 1.0
"""Seconds until processes that were killed must be gone."""


class Children:
    """The descendants of this process; those from before the first task stay, with their children."""

    def __init__(self) -> None:
        if sys.platform == "linux":
            ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        self._stay = set(descendants(os.getpid()))
        self.missed = False
        """Whether later tasks can miss an ended process: a pool uses it, or it is started again."""

    def end_new(self) -> list[str]:
        """Kills and reaps all that were started since; returns their names."""
        if sys.platform != "linux" or not _has_children():
            return []
        ended: dict[int, str] = {}
        until = time.monotonic() + _END_WITHIN
        stay = self._stay | {resource_tracker._resource_tracker._pid}  # type: ignore[attr-defined]  # noqa: SLF001
        while (new := descendants(os.getpid(), without=stay)) and time.monotonic() < until:
            self.missed = self.missed or _are_kept(new)
            for pid in new:
                if pid not in ended:
                    ended[pid] = name_of(pid)
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)
                with contextlib.suppress(ChildProcessError):  # a grandchild, adopted when its parent has ended
                    os.waitpid(pid, os.WNOHANG)
            time.sleep(0.001)
        self._stay |= set(new)  # processes that cannot be ended must not delay later tasks
        self.missed = self.missed or bool(new)
        return [name for name in ended.values() if name]


def _are_kept(pids: Collection[int]) -> bool:
    """Returns whether an object refers to one of these processes as more than a left child."""
    programs = [each for each in gc.get_referrers(subprocess.Popen) if isinstance(each, subprocess.Popen)]
    dropped = subprocess._active  # type: ignore[attr-defined]  # noqa: SLF001
    kept = [forkserver._forkserver._forkserver_pid, *(each.pid for each in multiprocessing.active_children())]  # type: ignore[attr-defined]  # noqa: SLF001
    kept += [each.pid for each in programs if each not in dropped]
    return any(pid in pids and name_of(pid) for pid in kept if pid is not None)


def _has_children() -> bool:
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True
