"""Calls of the operating system: ending a child with its parent, and the memory of a process."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
import time
from pathlib import Path
from types import FrameType

from firmq.worker.executors import own_signals
from firmq.worker.executors.process_tree import MARK, ProcessIdentity, children, end, started_at

_PR_SET_PDEATHSIG = 1


def die_with_parent(parent: int) -> None:
    """Ends this process, and all that it started, when its parent dies, even by SIGKILL.

    On Linux the kernel signals that at once. It does not send SIGKILL, which would leave processes of handlers behind;
    the worker's watchdog ends all of it, also where this process cannot react. Elsewhere a thread polls a few times a
    second.
    """
    if sys.platform == "linux":
        own_signals.handle(signal.SIGHUP, _on_hangup)
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGHUP)
    else:
        threading.Thread(target=_watch, args=(parent,), daemon=True).start()
    if os.getppid() != parent:
        os._exit(1)  # it died before this call


def _on_hangup(signum: int, frame: FrameType | None) -> None:
    """Ends the executor with its descendants."""
    end([ProcessIdentity(os.getpid(), started_at(os.getpid()), os.environ.get(MARK, ""))])
    os.kill(os.getpid(), signal.SIGKILL)


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(0.2)
    os._exit(1)


def memory_exceeds(limit: int, pid: int) -> bool:
    """Returns whether a process and all below it use more memory than this, in bytes.

    Pages that several share count once: a forked child shares nearly all of its parent's. Finding that out takes
    milliseconds, so it is done only where the plain sum is over the limit.
    """
    group = [pid]
    for each in group:
        group += children(each)
    if sum(map(memory_bytes, group)) <= limit:
        return False
    return len(group) == 1 or sum(map(_proportional_bytes, group)) > limit


def _proportional_bytes(pid: int) -> int:
    """Returns the resident memory of a process in bytes, with its part of shared pages."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("Pss:")) * 1024
    except (OSError, ValueError, StopIteration):
        return memory_bytes(pid)


def memory_bytes(pid: int) -> int:
    """Returns the resident memory of a process in bytes; 0 when unknown."""
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except (OSError, ValueError, IndexError):
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")
