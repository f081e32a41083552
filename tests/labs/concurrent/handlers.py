"""What the tasks of this laboratory do."""

from __future__ import annotations

import asyncio
import os
import time

from firmq import task


@task("sleep", timeout=60)
async def sleep(seconds: float) -> None:
    await asyncio.sleep(seconds)


@task("compute", timeout=60)
def compute(submitted_at: float) -> float:
    """Computes for 1 ms; returns its wait in seconds from submission to start."""
    waited = time.time() - submitted_at
    until = time.perf_counter() + 0.001
    while time.perf_counter() < until:
        pass
    return waited


@task("short", timeout=1, max_retries=0)
async def short(seconds: float) -> None:
    """Sleeps for longer than its limit of one second."""
    await asyncio.sleep(seconds)


@task("block")
async def block(seconds: float) -> None:
    """Blocks the event loop."""
    time.sleep(seconds)  # noqa: ASYNC251  # the point of this handler


@task("die")
async def die(after: float) -> None:
    """Ends its process each time it runs."""
    await asyncio.sleep(after)
    os._exit(3)
