"""Finds the processes of an executor in /proc, and ends all of them.

Linux only; elsewhere nothing is found. The module is also the program that `firmq.worker.executors.watchdog`
starts, so it imports next to nothing: that process needs some megabytes less than any other of the worker.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import time
from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

MARK = "FIRMQ_EXECUTOR"
"""An environment variable of an executor, inherited by processes that its handlers start; its value is unique."""


class ProcessIdentity(NamedTuple):
    """Identifies an executor among all processes, also later ones with its id."""

    pid: int
    started: str
    """In ticks of the kernel."""
    mark: str


class Process(NamedTuple):
    """A process that has not ended, or was not reaped yet."""

    name: str
    parent: int
    session: int
    started: str
    ended: bool


def processes() -> dict[int, Process]:
    """Returns all processes by their ids, which takes milliseconds; none where /proc shows another namespace."""
    found: dict[int, Process] = {}
    with contextlib.suppress(OSError):  # there is no /proc, or no room for another open file
        for entry in os.listdir("/proc") if _shows_our_namespace() else ():
            if entry.isdigit() and (process := _process(int(entry))):
                found[int(entry)] = process
    return found


def descendants(pid: int, without: Collection[int] = ()) -> list[int]:
    """Returns the descendants of a process, parents first, without some and their descendants."""
    return _with_all_below([pid], {each: found for each, found in processes().items() if each not in without})[1:]


def children(pid: int) -> list[int]:
    """Returns the children of one process, quickly; none where the kernel does not list them."""
    found: list[int] = []
    with contextlib.suppress(OSError):  # it ends right now, or one of its threads
        for thread in os.listdir(f"/proc/{pid}/task") if _shows_our_namespace() else ():
            with open(f"/proc/{pid}/task/{thread}/children") as file:
                found += map(int, file.read().split())
    return found


def started_at(pid: int) -> str:
    """Returns when a process started, in ticks of the kernel; empty when it is gone or unknown."""
    process = _process(pid) if _shows_our_namespace() else None
    return process.started if process else ""


def name_of(pid: int) -> str:
    """Returns the name of a process' program; empty for one that has ended."""
    process = _process(pid)
    return process.name if process and not process.ended else ""


def end(executors: Sequence[ProcessIdentity]) -> list[str]:
    """Kills executors and all that their handlers started, and returns the names of the latter.

    An executor's processes are its descendants, the session that it leads, processes that carry its mark, and their
    descendants: its children are found after its own death too. All are stopped first, so that none escapes by forking.
    """
    names: dict[int, str] = {}
    while new := [pid for pid in _belonging(executors) if pid not in names]:
        for pid in new:
            names[pid] = name_of(pid)
            _send(pid, signal.SIGSTOP)
    for pid in names:
        _send(pid, signal.SIGKILL)
    roots = {each.pid for each in executors}
    return [name for pid, name in names.items() if pid not in roots and name]


def _belonging(executors: Sequence[ProcessIdentity]) -> list[int]:
    found = {pid: process for pid, process in processes().items() if not process.ended and pid > 1}
    roots: set[int] = set()
    for pid, started, _ in executors:
        now = found.get(pid)
        if started and (now is None or now.started == started):  # its id was not reused
            roots |= {each for each, process in found.items() if each == pid or process.session == pid}
    marks = [f"{MARK}={each.mark}".encode() for each in executors if each.mark]
    roots |= {pid for pid in found if pid not in roots and _carries(pid, marks)}
    return [pid for pid in _with_all_below(roots, found) if pid != os.getpid()]


def _carries(pid: int, marks: Collection[bytes]) -> bool:
    with contextlib.suppress(OSError), open(f"/proc/{pid}/environ", "rb") as file:  # other users' cannot be read
        return not set(marks).isdisjoint(file.read().split(b"\0"))
    return False


def _with_all_below(roots: Iterable[int], found: dict[int, Process]) -> list[int]:
    below: dict[int, list[int]] = {}
    for pid, process in found.items():
        below.setdefault(process.parent, []).append(pid)
    reached = dict.fromkeys(roots)
    queue = list(reached)
    for each in queue:
        new = [child for child in below.get(each, ()) if child not in reached]
        reached.update(dict.fromkeys(new))
        queue += new
    return queue


def _process(pid: int) -> Process | None:
    try:
        with open(f"/proc/{pid}/stat", errors="replace") as file:
            before, _, after = file.read().rpartition(")")
    except OSError:
        return None
    fields = after.split()
    return Process(before.partition("(")[2], int(fields[1]), int(fields[3]), fields[19], ended=fields[0] in "ZX")


def _shows_our_namespace() -> bool:
    try:
        return os.readlink("/proc/self") == str(os.getpid())
    except OSError:
        return False


def _send(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)


# --- the watchdog's program ---


def watch(beats: int) -> None:
    """Ends executors past their deadline, and all of them when the worker has ended.

    Each line read from `beats` replaces the one before it: `PID:STARTED:MARK:UNTIL` for each executor, separated by
    spaces, with UNTIL in seconds of the monotonic clock.
    """
    partial = b""
    known: dict[ProcessIdentity, float] = {}
    while True:
        due = min(known.values(), default=float("inf"))
        patience = min(3600.0, max(0.0, due - time.monotonic()))
        if select.select([beats], [], [], patience)[0]:
            data = os.read(beats, 1 << 16)
            if not data:
                break
            *lines, partial = (partial + data).split(b"\n")
            if lines:
                known = dict(map(_read, lines[-1].decode().split()))
        else:
            overdue = [executor for executor, until in known.items() if until <= time.monotonic()]
            end(overdue)
            known = {executor: until for executor, until in known.items() if executor not in overdue}
    end(list(known))


def _read(word: str) -> tuple[ProcessIdentity, float]:
    pid, started, mark, until = word.split(":")
    return ProcessIdentity(int(pid), started, mark), float(until)


if __name__ == "__main__":
    for _ignored in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(_ignored, signal.SIG_IGN)
    watch(0)
