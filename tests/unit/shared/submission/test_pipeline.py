"""How coroutines share round trips, and what becomes of those in flight when the pipeline is closed."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from typing import Any

import pytest

from firmq.shared.redis.scripts import ScriptCall, Steps
from firmq.shared.submission.pipeline import Pipeline


class Server:
    """Answers calls with their names once it may."""

    def __init__(self) -> None:
        self.asked = threading.Event()
        self.may_answer = threading.Event()

    def call_many(self, calls: Sequence[ScriptCall]) -> list[Any]:
        self.asked.set()
        self.may_answer.wait(60)
        return [name for name, _ in calls]


class SlowlyJoined:
    """The pipeline's thread, whose end is noticed a moment later."""

    def __init__(self, thread: threading.Thread) -> None:
        self.thread = thread

    def join(self) -> None:
        self.thread.join()
        threading.Event().wait(0.2)


def two_calls() -> Steps[list[str]]:
    first = yield "first", ()
    second = yield "second", ()
    return [first, second]


def test_closing_waits_for_submissions_that_need_another_call() -> None:
    server = Server()
    pipeline = Pipeline(server.call_many)

    async def run() -> list[str]:
        submission = asyncio.ensure_future(pipeline.run(two_calls()))
        await asyncio.to_thread(server.asked.wait, 60)
        assert pipeline._thread is not None
        pipeline._thread = SlowlyJoined(pipeline._thread)  # type: ignore[assignment]
        closing = asyncio.ensure_future(asyncio.to_thread(pipeline.close))
        await asyncio.sleep(0.05)
        server.may_answer.set()
        async with asyncio.timeout(60):
            outcome = await submission
            await closing
        return outcome

    assert asyncio.run(run()) == ["first", "second"]


def test_closing_waits_for_no_submission_that_was_cancelled() -> None:
    server = Server()
    pipeline = Pipeline(server.call_many)

    async def run() -> None:
        submission = asyncio.ensure_future(pipeline.run(two_calls()))
        await asyncio.to_thread(server.asked.wait, 60)
        submission.cancel()
        server.may_answer.set()
        async with asyncio.timeout(60):
            await asyncio.to_thread(pipeline.close)

    asyncio.run(run())


def test_a_loop_that_ended_before_its_answer_stops_no_other() -> None:
    server = Server()
    pipeline = Pipeline(server.call_many)

    async def leave() -> None:
        left = asyncio.ensure_future(pipeline.run(two_calls()))
        await asyncio.to_thread(server.asked.wait, 60)
        assert not left.done()

    asyncio.run(leave())
    server.may_answer.set()
    assert asyncio.run(pipeline.run(two_calls())) == ["first", "second"]
    pipeline.close()


def test_a_submission_learns_why_its_call_failed() -> None:
    seen: list[Exception] = []

    def failing(calls: Sequence[ScriptCall]) -> list[Any]:
        return [ConnectionError("away")] * len(calls)

    def submission() -> Steps[None]:
        try:
            yield "first", ()
        except ConnectionError as error:
            seen.append(error)
            raise

    pipeline = Pipeline(failing)
    with pytest.raises(ConnectionError, match="away"):
        asyncio.run(pipeline.run(submission()))
    assert len(seen) == 1
    pipeline.close()
