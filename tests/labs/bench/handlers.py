"""What the measured tasks do. Every system runs these same functions, imported in its own environment.

Standard library only: this module is loaded next to every system's dependencies. Each returns its number, as some
systems do not keep a result that is None.
"""

from __future__ import annotations

import asyncio
import functools
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.labs.bench.sheet import Sheet


@functools.cache
def sheet() -> Sheet:
    """Opened at the first task rather than at import, as some systems import handlers in processes that run none."""
    return Sheet(Path(os.environ["BENCH_SHEET"]))


def empty(number: int) -> int:
    """Nothing: what is left is the system's own cost."""
    sheet().stamp(number, time.time())
    return number


def carry(number: int, payload: dict[str, Any]) -> int:
    """Nothing, with a payload, for the bytes a task takes in Redis."""
    sheet().stamp(number, time.time())
    return number


def spin(number: int, seconds: float) -> int:
    """Real work by the thread's own processor clock, so that a busy machine or a shared interpreter lock adds none."""
    sheet().stamp(number, time.time())
    end = time.thread_time() + seconds
    value = 1
    while time.thread_time() < end:
        for _ in range(200):
            value = (value * 31 + 7) % 1_000_003
    return number


def nap(number: int, seconds: float) -> int:
    """A slow partner: waits without using the processor."""
    sheet().stamp(number, time.time())
    time.sleep(seconds)
    return number


async def empty_async(number: int) -> int:
    return empty(number)


async def carry_async(number: int, payload: dict[str, Any]) -> int:
    return carry(number, payload)


async def nap_async(number: int, seconds: float) -> int:
    sheet().stamp(number, time.time())
    await asyncio.sleep(seconds)
    return number


Handler = Callable[..., Any]

BLOCKING: dict[str, Handler] = {"empty": empty, "carry": carry, "spin": spin, "nap": nap}

# For the asyncio systems, as their documentation would have it: coroutines for what waits, a plain function (which
# they run in a thread) for what computes.
ASYNC: dict[str, Handler] = {"empty": empty_async, "carry": carry_async, "spin": spin, "nap": nap_async}
