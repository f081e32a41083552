"""Task types of the laboratory: what they do is written into a ledger outside Redis, as they do it."""

from __future__ import annotations

import logging
import os
import sys
import time
from contextlib import suppress
from contextvars import ContextVar
from functools import cache

from firmq import GiveUp, RetryLater, current_task, report_progress, task
from tests.labs.faults.ledger import EXECUTIONS
from tests.labs.faults.surroundings import changed

log = logging.getLogger(__name__)

FOUND = "found-"
"""Begins what a task notes that finds what another has left behind."""
MARK = 0.05
"""Seconds between signs of life of a task that runs."""
LINE = "line of "
own: ContextVar[int] = ContextVar("own", default=0)
"""The number of the task, as it set it itself."""


@cache
def _ledger() -> int:
    return os.open(os.path.join(os.environ["FAULTS_LEDGER"], EXECUTIONS), os.O_WRONLY | os.O_APPEND | os.O_CREAT)


def note(what: str, detail: str = "") -> None:
    """One line, written at once: what, task, attempt, this executor, its worker, when, detail."""
    me = current_task()
    line = f"{what} {me.id} {me.attempt} {os.getpid()} {os.getppid()} {time.monotonic_ns()} {detail}\n"
    os.write(_ledger(), line.encode())


def line(n: int) -> str:
    """What a task says in its log and beside its progress."""
    return f"{LINE}{n} "


def begin(n: int) -> None:
    """Notes the start, and in which kind of executor; marks what is to be this task's own."""
    note("start", sys.argv[1])
    check_surroundings()
    own.set(n)
    log.info(line(n))
    report_progress(0.5, line(n))


def alive(n: int) -> None:
    """A sign of life; notes when a context variable of another task is seen here."""
    note("alive")
    if own.get() != n:
        note("wrong", f"{FOUND}context-of-{own.get()}")


def _take_time(n: int, seconds: float) -> None:
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        time.sleep(min(MARK, left))
        alive(n)


def finish(n: int, kind: str, failures: int) -> int:
    """The end that a kind asks for, written down before it comes."""
    failed_before = current_task().failures
    if kind == "crash":
        note("end", "crash")
        _crash(n)
    if kind == "later" and failed_before == 0:
        note("end", "fail")
        raise RetryLater(0.3, "not yet")
    if kind == "give-up":
        note("end", "fail")
        raise GiveUp("it can never work")
    if kind == "fail" or (kind == "flaky" and failed_before < failures):
        note("end", "fail")
        raise RuntimeError("as asked")
    note("end", "complete")
    return n


def _crash(n: int) -> None:
    """Ends this process, or writes into its pipes, as C code with a wrong file descriptor does, and waits."""
    if n % 2:
        os._exit(9)
    for fd in map(int, os.listdir("/proc/self/fd")):
        with suppress(OSError):
            if fd > sys.stderr.fileno() and os.readlink(f"/proc/self/fd/{fd}").startswith("pipe:"):
                os.write(fd, b"\xff" * 12)
    time.sleep(3600)


def check_surroundings() -> None:
    """Notes what is not as it was when this process started: a task before this one left it so."""
    for each in changed():
        note("wrong", f"{FOUND}{each}")


def look_back(n: int) -> None:
    """A task that waited for others is told how each of them ended; its last line is its own, as the first."""
    log.info(line(n))
    for parent in current_task().parents:
        if parent.state != "completed":
            note("wrong", f"parent-{parent.id}-is-{parent.state}")


def run(n: int, kind: str, seconds: float = 0.0, failures: int = 0) -> int:
    """What every handler here does: it notes its start, takes its time, and ends as its kind says."""
    try:
        begin(n)
        _take_time(n, seconds)
        look_back(n)
    except BaseException:
        note("end", "stopped")
        raise
    return finish(n, kind, failures)


@task("lab")
def lab(n: int, kind: str, seconds: float = 0.0, failures: int = 0) -> int:
    """Takes its time and ends as its kind says; `n` is its number in the ledger."""
    return run(n, kind, seconds, failures)


@task("lab-limited", concurrency=3)
def limited(n: int, kind: str, seconds: float = 0.0, failures: int = 0) -> int:
    """The same, three at a time."""
    return run(n, kind, seconds, failures)
