# mypy: ignore-errors
# (As its neighbours: it runs in this adapter's own environment, from the checkout.)
"""This product without a gateway, from an event loop: 50 single submissions of `AsyncQueue` in flight."""

import asyncio
import time

from firmq import AsyncQueue
from tests.labs.bench import adapter
from tests.labs.bench.systems import firmq_direct as direct

TITLE = "Firmq, direct, async"
PACKAGES = direct.PACKAGES
WORKLOADS = direct.WORKLOADS
IN_FLIGHT = 50

workers, enqueue, submit, unfinished = direct.workers, direct.enqueue, direct.submit, direct.unfinished


def submit_each(kind, calls):
    return adapter.wait(flood(kind, calls))


async def flood(kind, calls):
    left, taken = iter(calls), []

    async def one_after_another():
        for args in left:
            began = time.perf_counter()
            await queue.submit(kind, direct.data_of(kind, args))
            taken.append(time.perf_counter() - began)

    async with AsyncQueue(adapter.REDIS_URL, **direct.SETTINGS) as queue:
        await asyncio.gather(*(one_after_another() for _ in range(IN_FLIGHT)))
    return taken
