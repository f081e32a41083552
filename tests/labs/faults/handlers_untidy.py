"""Task types that leave something behind, and neighbours in the same process that would suffer from it."""

from __future__ import annotations

import asyncio
import logging
import os
import resource
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable

from firmq import report_progress, task
from firmq.worker.executors.leftovers import THOROUGH_US
from tests.labs.faults.handlers import FOUND, begin, line, note
from tests.labs.faults.surroundings import LEFT

log = logging.getLogger(__name__)

SLEEPS = 600
"""Seconds that a child sleeps that nobody ends."""
TALKS = 1.0
"""Seconds for which a thread that was left behind goes on talking."""
CHECKED_AFTER = THOROUGH_US / 1_000_000
"""Seconds that an attempt runs until it is checked by itself; shorter ones are checked together."""


def _alarm(n: int) -> None:
    signal.setitimer(signal.ITIMER_REAL, 0.05)


def _mask(n: int) -> None:
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1, signal.SIGUSR2])


def _handler(n: int) -> None:
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)


def _output(n: int) -> None:
    sys.stdout.close()
    sys.stderr.close()


def _files(n: int) -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (20, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))


def _folder(n: int) -> None:
    gone = tempfile.mkdtemp()
    os.chdir(gone)
    os.rmdir(gone)


def _umask(n: int) -> None:
    os.umask(0o777)


def _environment(n: int) -> None:
    os.environ[LEFT] = str(n)


def _recursion(n: int) -> None:
    sys.setrecursionlimit(150)


def _timeout(n: int) -> None:
    socket.setdefaulttimeout(0.001)


def _loop(n: int) -> None:
    """As in programs of before asyncio.run: the loop of the process is taken, used and closed."""
    try:
        loop = asyncio.get_event_loop()
    except RuntimeError:
        loop = asyncio.new_event_loop()
        asyncio.set_event_loop(loop)
    loop.run_until_complete(asyncio.sleep(0))
    loop.close()


def _logging(n: int) -> None:
    logging.disable(logging.CRITICAL)
    logging.getLogger().handlers.clear()


def _child(n: int) -> None:
    """In a session of its own, so the end of its parent's group does not reach it."""
    child = subprocess.Popen(["sleep", f"{SLEEPS}.{n}"], start_new_session=True)
    note("left", str(child.pid))


def _thread(n: int) -> None:
    def talk() -> None:
        end = time.monotonic() + TALKS
        while time.monotonic() < end:
            log.info(line(n))
            report_progress(0.5, line(n))
            time.sleep(0.05)

    threading.Thread(target=talk, daemon=True).start()


LEFTOVERS: dict[str, Callable[[int], None]] = {
    each.__name__.removeprefix("_"): each
    for each in (
        _alarm, _mask, _handler, _output, _files, _folder, _umask, _environment, _recursion, _timeout, _loop, _logging,
        _child, _thread,
    )
}  # fmt: skip


@task("lab-untidy")
def untidy(n: int, kind: str, leaves: str) -> int:
    """Completes, and leaves behind what it is told to."""
    begin(n)
    LEFTOVERS[leaves](n)
    time.sleep(CHECKED_AFTER)
    note("end", "complete")
    return n


async def _never_ends() -> None:
    while True:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            continue


async def _outlives(n: int) -> None:
    await asyncio.sleep(TALKS)
    log.info(line(n))
    note("wrong", f"{FOUND}task-that-outlived-its-handler")


@task("lab-untidy-async")
async def untidy_async(n: int, kind: str) -> int:
    """Completes, and leaves two coroutines behind: one waits, the other swallows its cancellation."""
    begin(n)
    loop = asyncio.get_running_loop()
    left = [loop.create_task(each) for each in (_never_ends(), _outlives(n))]
    await asyncio.sleep(0)
    assert not any(each.done() for each in left)
    note("end", "complete")
    return n
