"""The processes below a process, as /proc shows them, and the end of all of them.

Linux only; elsewhere nothing is found. The module is also the program that `worker.watchdog` starts, so it imports
next to nothing: that process needs some megabytes less than any other of the worker.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import time
from collections.abc import Collection


def descendants(*roots: int, without: Collection[int] = ()) -> list[int]:
    """Returns the processes below these, parents first, without some and what is below those.

    Those that have ended and were not waited for are among them. It looks at all processes, which takes milliseconds.
    """
    below: dict[int, list[int]] = {}
    entries: list[str] = []
    with contextlib.suppress(OSError):  # there is no /proc, or no room for another open file
        entries = os.listdir("/proc")
    for entry in entries:
        if entry.isdigit() and int(entry) not in without and (fields := _stat(int(entry))):
            below.setdefault(int(fields[1]), []).append(int(entry))
    found = list(roots)
    for each in found:
        found += (child for child in below.get(each, ()) if child not in found)
    return found[len(roots) :]


def children(pid: int) -> list[int]:
    """Returns the children of one process, quickly; none where the kernel does not list them."""
    found: list[int] = []
    with contextlib.suppress(OSError):  # it ends right now, or one of its threads
        for thread in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{thread}/children") as file:
                found += map(int, file.read().split())
    return found


def started_at(pid: int) -> str:
    """Returns when a process started, in ticks of the kernel, which tells it from a later one of the same id."""
    fields = _stat(pid)
    return fields[19] if fields else ""


def name_of(pid: int) -> str:
    """Returns the name of a process' program; empty for one that has ended."""
    if _stat(pid)[:1] in ([], ["Z"]):
        return ""
    with contextlib.suppress(OSError), open(f"/proc/{pid}/comm", errors="replace") as file:
        return file.read().strip()
    return ""


def end_trees(*roots: int) -> None:
    """Kills these processes and all below them. Each is stopped first, so that none escapes by forking.

    Raises ValueError for an id that names more than a process: 0 and below are groups, everything is below 1.
    """
    if any(pid <= 1 for pid in roots):
        raise ValueError(f"a tree of processes is named by its root's id, not by {roots}")
    stopped: list[int] = []
    while roots and (new := [pid for pid in (*roots, *descendants(*roots)) if pid not in stopped]):
        for pid in new:
            _send(pid, signal.SIGSTOP)
        stopped += new
    for pid in stopped:
        _send(pid, signal.SIGKILL)


def _send(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)


def _stat(pid: int) -> list[str]:
    """The fields of /proc/PID/stat from the state on."""
    try:
        with open(f"/proc/{pid}/stat", errors="replace") as file:
            return file.read().rpartition(")")[2].split()
    except OSError:
        return []


# --- the watchdog's program ---


def watch(beats: int) -> None:
    """Ends executors whose time is over, and all of them when the worker has ended.

    Each line read from `beats` replaces the one before it: `PID:STARTED:UNTIL` for each executor, separated by spaces,
    with UNTIL in seconds of the monotonic clock.
    """
    unread = b""
    executors: list[list[str]] = []
    while True:
        due = min((float(until) for _, _, until in executors), default=float("inf"))
        patience = min(3600.0, max(0.0, due - time.monotonic()))
        if select.select([beats], [], [], patience)[0]:
            data = os.read(beats, 1 << 16)
            if not data:
                break
            *lines, unread = (unread + data).split(b"\n")
            if lines:
                executors = [each.split(":") for each in lines[-1].decode().split()]
        else:
            overdue = [each for each in executors if float(each[2]) <= time.monotonic()]
            executors = [each for each in executors if each not in overdue]
            _end(overdue)
    _end(executors)


def _end(executors: list[list[str]]) -> None:
    end_trees(*(int(pid) for pid, started, _ in executors if started and started_at(int(pid)) == started))


if __name__ == "__main__":
    for _ignored in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(_ignored, signal.SIG_IGN)
    watch(0)
