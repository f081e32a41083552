"""Task types that mostly wait, of which one executor runs many at a time; some do not behave as such a type should."""

from __future__ import annotations

import asyncio
import time

from firmq import task
from tests.labs.faults.handlers import MARK, alive, begin, finish, look_back, note, run

BLOCKS = 3.0
"""Seconds for which a blocking task keeps the event loop from the others, if nobody stops it."""


async def wait(n: int, kind: str, seconds: float = 0.0, failures: int = 0) -> int:
    """As `run`, for a coroutine; what it looks at after each wait is its own."""
    try:
        begin(n)
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            await asyncio.sleep(min(MARK, left))
            alive(n)
        look_back(n)
    except BaseException:
        note("end", "stopped")
        raise
    return finish(n, kind, failures)


@task("lab-waiting")
async def waiting(n: int, kind: str, seconds: float = 0.0, failures: int = 0) -> int:
    return await wait(n, kind, seconds, failures)


@task("lab-thread", threads=True)
def in_thread(n: int, kind: str, seconds: float = 0.0, failures: int = 0) -> int:
    """A plain function in a thread."""
    return run(n, kind, seconds, failures)


@task("lab-waiting-limited", concurrency=3)
async def limited(n: int, kind: str, seconds: float = 0.0, failures: int = 0) -> int:
    """Three at a time."""
    return await wait(n, kind, seconds, failures)


@task("lab-stubborn")
async def stubborn(n: int, kind: str) -> int:
    """Swallows each cancellation, and never ends by itself."""
    try:
        begin(n)
        while True:
            try:
                await asyncio.sleep(MARK)
                alive(n)
            except asyncio.CancelledError:
                continue
    finally:
        note("end", "stopped")


@task("lab-stuck", threads=True)
def stuck(n: int, kind: str) -> None:
    """Waits where Python cannot interrupt it: only the end of its process ends it."""
    begin(n)
    time.sleep(3600)


@task("lab-blocking")
async def blocking(n: int, kind: str) -> int:
    """Waits as only a plain function may, until its type runs one at a time."""
    try:
        begin(n)
        time.sleep(BLOCKS)  # noqa: ASYNC251  # the point of this handler
        look_back(n)
    except BaseException:
        note("end", "stopped")
        raise
    return finish(n, kind, 0)
