"""Handlers that mostly wait, and some that do not behave as such a handler should."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import resource
import signal
import sys
import threading
import time
from contextvars import ContextVar
from pathlib import Path

from firmq import current_task, progress, report_progress, task
from firmq.shared.client import AsyncClient
from firmq.worker.executors.attempt import Attempt
from firmq.worker.executors.ipc import EndedAttempt

log = logging.getLogger(__name__)
queue = AsyncClient()
seen: ContextVar[str] = ContextVar("seen", default="")


@task("nap", timeout=60)
async def nap(seconds: float) -> str:
    """Waits, and tells its own id, as it is before and after the wait."""
    before = current_task().id
    await asyncio.sleep(seconds)
    assert current_task().id == before
    return before


@task("naps", timeout=60)
async def naps(seconds: float) -> None:
    """Waits ten times: after a blockage it has most of them before it."""
    for _ in range(10):
        await asyncio.sleep(seconds / 10)


@task("waits-at-first")
async def waits_at_first() -> None:
    """Waits until its first attempt is ended from outside; a later one returns at once."""
    if current_task().attempt == 1:
        await asyncio.sleep(3600)


@task("marked")
async def marked(name: str, seconds: float) -> str:
    """Marks itself by a context variable, logs, and shows its progress."""
    seen.set(name)
    log.info("begin %s", name)
    report_progress(0.5, name)
    await asyncio.sleep(seconds)
    await asyncio.gather(*(_line(name) for _ in range(2)))
    await asyncio.to_thread(log.info, "thread %s", name)
    return seen.get()


async def _line(name: str) -> None:
    await asyncio.sleep(0)
    log.info("child %s", name)


@task("asks")
async def asks(number: int) -> int:
    """Has another task do half of the work."""
    task = await queue.submit("echo", number)
    return number + int(await queue.result(task.task_id, timeout=60))


@task("counts", timeout=60)
async def counts(until: str) -> int:
    """Computes in short steps until there is a file, and gives others turns by telling its progress."""
    steps = 0
    while not os.path.exists(until):  # noqa: ASYNC240
        time.sleep(0.01)  # noqa: ASYNC251  # computing
        steps += 1
        await progress(0.5, f"step {steps}")
    return steps


@task("limited", timeout=1, max_retries=0)
async def limited(seconds: float) -> None:
    await asyncio.sleep(seconds)


@task("swallows", timeout=1, max_retries=0)
async def swallows() -> None:
    """Ignores that it is cancelled."""
    while True:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            continue


@task("swallows-tidily", timeout=1, max_retries=0)
async def swallows_tidily(path: str) -> None:
    """Ignores that it is cancelled, and writes a file when it is closed."""
    try:
        while True:
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(3600)
    finally:
        Path(path).write_text(current_task().id)  # noqa: ASYNC240  # a test's file


@task("wedged", timeout=1, max_retries=0)
async def wedged() -> None:
    """Ignores whatever is raised in it."""
    while True:
        try:
            await asyncio.sleep(3600)
        except BaseException:  # the point of this handler
            continue


@task("blocker")
async def blocker(seconds: float) -> str:
    """Waits as only a plain function may."""
    time.sleep(seconds)  # noqa: ASYNC251  # the point of this handler
    return "slept"


@task("group-blocker")
async def group_blocker(seconds: float) -> None:
    """Blocks the loop in a task of a group, which wraps what is raised there."""
    async with asyncio.TaskGroup() as group:
        group.create_task(_block(seconds))


async def _block(seconds: float) -> None:
    time.sleep(seconds)  # noqa: ASYNC251  # the point of this handler


@task("turns-cancel-into-error")
async def turns_cancel_into_error() -> None:
    try:
        await asyncio.sleep(3600)
    except asyncio.CancelledError:
        raise ValueError("cannot go on") from None


@task("chatty")
async def chatty(events: int) -> None:
    """Sends more than the pipe to the worker holds."""
    _send_progress(events)


@task("thread-chatty", threads=True)
def thread_chatty(events: int) -> None:
    _send_progress(events)


def _send_progress(events: int) -> None:
    for _ in range(events):
        report_progress(1, "x" * 500)


@task("spoils-outcomes", timeout=1)
async def spoils_outcomes(wedged: bool) -> None:
    """Makes its executor unable to send an outcome, and ends by itself or never."""

    def fail(self: Attempt, result: bytes | BaseException) -> EndedAttempt:
        raise RuntimeError("a bug")

    Attempt.ended = fail  # type: ignore[method-assign]
    while wedged:
        try:
            await asyncio.sleep(3600)
        except BaseException:  # the point of this handler
            continue


@task("slows-outcomes")
async def slows_outcomes(seconds: float) -> None:
    """Makes its executor take long to send an outcome."""
    ended = Attempt.ended

    def end_late(self: Attempt, result: bytes | BaseException) -> EndedAttempt:
        time.sleep(seconds)
        return ended(self, result)

    Attempt.ended = end_late  # type: ignore[method-assign]


@task("dies")
async def dies(after: float) -> None:
    """Ends its process each time it runs."""
    await asyncio.sleep(after)
    os._exit(3)


@task("leaver")
async def leaver(seconds: float) -> str:
    """Leaves a task running when it returns."""
    asyncio.create_task(asyncio.sleep(seconds))  # noqa: RUF006  # the point of this handler
    return "left"


@task("tidy")
async def tidy(seconds: float, begun: str, cleaned: str) -> None:
    """Adds its id to a file when it begins, and to another one when it is stopped."""
    _add_id(begun)
    try:
        await asyncio.sleep(seconds)
    finally:
        _add_id(cleaned)


def _add_id(path: str) -> None:
    with open(path, "a", encoding="utf-8") as file:
        file.write(f"{current_task().id}\n")


@task("thread-nap", threads=True, timeout=60)
def thread_nap(seconds: float) -> list[str]:
    time.sleep(seconds)
    return [current_task().id, threading.current_thread().name]


@task("thread-limited", threads=True, timeout=1, max_retries=0)
def thread_limited(seconds: float) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        time.sleep(0.01)


@task("thread-stuck", threads=True, timeout=1, max_retries=0)
def thread_stuck() -> None:
    """Waits where Python cannot interrupt it."""
    time.sleep(3600)


@task("thread-state", threads=True, max_retries=0)
def thread_state() -> list[int]:
    """Gives the numbers of blocked signals and of processors of its thread, and changes both."""
    blocked, processors = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM]), os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(processors)})
    return [len(blocked), len(processors)]


@task("thread-forks", threads=True, timeout=10, max_retries=0)
def thread_forks(how: str) -> int:
    return _status_of_a_child(how)


@task("forks", timeout=10, max_retries=0)
async def forks(how: str) -> int:
    return _status_of_a_child(how)


def _status_of_a_child(how: str) -> int:
    """Forks a process that leaves the handler, and returns its exit status."""
    if pid := os.fork():
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if how == "exits":
        sys.exit(7)
    if how == "raises":
        raise ValueError("in a forked process")
    return 5


@task("limit-files", max_retries=0)
async def limit_files() -> None:
    """Lets its process open no more files."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))


@task("open-later", max_retries=0)
async def open_later(go: str) -> bool:
    """Opens a file once its process cannot, or a file is there."""
    while resource.getrlimit(resource.RLIMIT_NOFILE)[0] > 3 and not os.path.exists(go):  # noqa: ASYNC240
        await asyncio.sleep(0.01)
    with open(__file__):  # noqa: ASYNC230
        return True
