"""The client for threads is what the tool makes of the one for asyncio."""

from __future__ import annotations

from tools.unasync import main, without_async


def test_the_generated_modules_are_up_to_date() -> None:
    assert main(["--check"]) == 0


def test_async_and_await_are_removed_and_names_changed() -> None:
    source = "from firmq.shared.client.aio.feed import AsyncBatchFeed\nasync def f(x: AsyncIterator[int]) -> int:\n"
    source += "    async with a, aclosing(x) as b:\n        return await anext(b) + awaited.__aenter__\n"
    assert without_async(source) == (
        "from firmq.shared.client.feed import BatchFeed\ndef f(x: Iterator[int]) -> int:\n"
        "    with a, closing(x) as b:\n        return next(b) + awaited.__enter__\n"
    )
