"""What an attempt sets on the loop of its executor is its own, and nothing of it is shut down for the others."""

from __future__ import annotations

import asyncio
import contextlib
import multiprocessing
import threading
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from typing import Any, TypeVar

import pytest

from firmq.worker.executors.coroutines import CoroutineRunner
from firmq.worker.executors.handlers_loop import CALLS_LEFT, THREADS_LEFT, Begun, HandlersLoop, begun, new_loop

Value = TypeVar("Value")


@pytest.fixture
def loop() -> Iterator[HandlersLoop]:
    loop = new_loop(4)
    yield loop
    loop.close()


async def attempt(body: Callable[[], Awaitable[Value]]) -> Value:
    begun.set(Begun())
    return await body()


def test_as_many_calls_run_at_a_time_as_there_are_threads(loop: HandlersLoop) -> None:
    together = threading.Barrier(4)

    async def call() -> int:
        return await asyncio.to_thread(together.wait, 20)

    async def four() -> list[int]:
        return await asyncio.gather(*(attempt(call) for _ in range(4)))

    assert sorted(loop.run_until_complete(four())) == [0, 1, 2, 3]


def test_a_default_executor_and_a_task_factory_belong_to_the_attempt_that_sets_them(loop: HandlersLoop) -> None:
    made: list[str] = []

    def factory(loop: asyncio.AbstractEventLoop, coroutine: Any, **options: Any) -> asyncio.Task[Any]:
        made.append("task")
        return asyncio.Task(coroutine, loop=loop, **options)

    async def change() -> str:
        own = asyncio.get_running_loop()
        own.set_default_executor(ThreadPoolExecutor(1, "mine"))
        own.set_task_factory(factory)
        await asyncio.create_task(asyncio.sleep(0))
        return await asyncio.to_thread(lambda: threading.current_thread().name)

    async def look() -> str:
        assert asyncio.get_running_loop().get_task_factory() is None
        await asyncio.create_task(asyncio.sleep(0))
        return await asyncio.to_thread(lambda: threading.current_thread().name)

    async def both() -> list[str]:
        return [await asyncio.create_task(attempt(change)), await asyncio.create_task(attempt(look))]

    mine, other = loop.run_until_complete(both())
    assert (mine.startswith("mine"), other.startswith("mine"), made) == (True, False, ["task"])


def test_what_an_attempt_shuts_down_works_for_the_next() -> None:
    runner = CoroutineRunner(cancel_wait=0.05)

    async def shut_down() -> None:
        own = asyncio.get_running_loop()
        await asyncio.to_thread(int)
        await own.shutdown_default_executor()
        await own.shutdown_asyncgens()
        own.set_task_factory(None)
        own.set_exception_handler(lambda *_: None)
        own.set_debug(True)
        own.slow_callback_duration = 7

    async def look() -> tuple[object, ...]:
        own = asyncio.get_running_loop()
        await asyncio.to_thread(int)
        return own.get_exception_handler(), own.get_debug(), own.slow_callback_duration, len(begun.get().tasks)  # type: ignore[union-attr]

    before = runner.run(look())
    runner.run(shut_down())
    assert runner.run(look()) == before
    assert runner.left == ""


@pytest.mark.parametrize("own_pool", [False, True])
def test_calls_that_hang_leave_later_ones_their_threads_until_there_are_too_many(own_pool: bool) -> None:
    runner, end = CoroutineRunner(cancel_wait=600), threading.Event()

    async def set_pool() -> None:
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))

    async def leave() -> None:
        asyncio.get_running_loop().run_in_executor(None, end.wait)

    if own_pool:
        runner.run_and_keep(set_pool())
    try:
        for _ in range(32):
            runner.run(leave())
            assert runner.calls_left
            runner.run(asyncio.to_thread(int))
            assert runner.left == ""
        runner.run(leave())
        assert runner.left == CALLS_LEFT
        runner.left, runner.calls_left = "", False
        runner.run(asyncio.to_thread(int))  # one that leaves none is not blamed for those of others
        assert (runner.left, runner.calls_left) == ("", False)
    finally:
        end.set()


def test_a_call_that_is_given_up_and_occupies_an_executor_of_the_module_is_reported() -> None:
    runner, end, shared = CoroutineRunner(cancel_wait=600), threading.Event(), ThreadPoolExecutor(2)

    async def call(in_time: float | None) -> None:
        waiter = asyncio.get_running_loop().run_in_executor(shared, end.wait)
        if in_time is not None:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(waiter, in_time)

    async def call_in_process(pool: ProcessPoolExecutor) -> int:
        return await asyncio.get_running_loop().run_in_executor(pool, abs, -3)

    try:
        runner.run(call(0.01))
        assert runner.left == "", "it has another thread"
        runner.run(call(None))
        assert runner.left == "", "nothing waited for it: it is meant to go on"
        end.set()
        runner.run(call(10))
        assert runner.left == "", "it has ended"
        end.clear()
        runner.run(call(0.01))
        assert runner.left == ""
        runner.run(call(0.01))
        assert runner.left == THREADS_LEFT
        with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
            assert runner.run(call_in_process(pool)) == 3
    finally:
        end.set()


def test_what_an_interrupted_attempt_shields_occupies_its_executor_too(loop: HandlersLoop) -> None:
    end, shared, own = threading.Event(), ThreadPoolExecutor(1), Begun()

    async def shielded() -> None:
        begun.set(own)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(asyncio.shield(loop.run_in_executor(shared, end.wait)), 0.05)

    try:
        loop.run_until_complete(shielded())
        assert loop.leave_calls(own, interrupted=False) == ""
        assert loop.leave_calls(own, interrupted=True) == THREADS_LEFT
    finally:
        end.set()
