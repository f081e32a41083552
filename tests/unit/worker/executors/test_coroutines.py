"""A coroutine that runs by itself gets a loop of its own, whatever the one before did."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from firmq.worker.executors.coroutines import CoroutineRunner


async def answer(value: str) -> str:
    await asyncio.sleep(0)
    return value


def test_a_loop_that_was_closed_breaks_nothing_after_it() -> None:
    runner = CoroutineRunner(cancel_wait=0.1)
    assert runner.run(answer("one")) == "one"
    with suppress(RuntimeError, DeprecationWarning):  # a handler closes the current loop, if there is one
        asyncio.get_event_loop_policy().get_event_loop().close()
    assert runner.run(answer("two")) == "two"


def test_a_coroutine_that_ignores_being_cancelled_is_named() -> None:
    async def sleep_on() -> None:
        while True:
            try:
                await asyncio.sleep(3600)
            except asyncio.CancelledError:
                continue

    async def leave() -> str:
        asyncio.create_task(sleep_on())  # noqa: RUF006  # the point of this test
        await asyncio.sleep(0)
        return "left"

    runner = CoroutineRunner(cancel_wait=0.05)
    assert runner.run(leave()) == "left"
    assert "sleep_on" in runner.left


def test_tasks_that_belong_to_the_executor_survive_its_handlers() -> None:
    runner = CoroutineRunner(cancel_wait=0.05)
    turns: list[int] = []

    async def pool() -> None:
        while True:
            turns.append(len(turns))
            await asyncio.sleep(0)

    async def open_pool() -> asyncio.Task[None]:
        return asyncio.create_task(pool())

    kept = runner.run_and_keep(open_pool())
    runner.run(answer("one"))
    seen = len(turns)
    runner.run(answer("two"))
    assert len(turns) > seen > 0
    assert not kept.done()
    assert runner.left == ""
    kept.cancel()
    runner.run(answer("three"))
