"""What only the client for asyncio has: cancellation, hundreds of calls at a time, and use in handlers."""

from __future__ import annotations

import asyncio
import itertools
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Coroutine
from contextlib import aclosing
from typing import Any

import pytest

from firmq.shared.client import AsyncClient, TaskState, Unreachable, new_task
from firmq.shared.client.aio import connections as connecting
from firmq.shared.client.aio.connections import CONNECTIONS, Connection, Connections
from tests.integration.client.conftest import Running

Opened = list[Connection]


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> Opened:
    """The connections that are opened."""
    found: Opened = []
    connect = Connections.connect

    async def noted(self: Connections, *arguments: float) -> Connection:
        connection = await connect(self, *arguments)
        found.append(connection)
        return connection

    monkeypatch.setattr(Connections, "connect", noted)
    return found


async def cancelled(call: Coroutine[Any, Any, object]) -> None:
    """Cancels a call in the middle."""
    task = asyncio.create_task(call)
    await asyncio.sleep(0.3)
    assert not task.done()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def _next(items: AsyncIterator[object]) -> object:
    return await anext(items)


def test_a_cancelled_call_closes_its_connection(running: Running, opened: Opened) -> None:
    async def scenario() -> None:
        async with AsyncClient(running.url) as client:
            task = (await client.submit("echo", "late", delay=60)).task_id
            await cancelled(client.result(task))
            assert [each.usable for each in opened] == [False], "an answer may still come on it"
            assert (await client.get(task)).data == "late"
            await client.cancel(task)

    asyncio.run(scenario())


def test_a_time_limit_of_the_caller_ends_a_call(running: Running) -> None:
    async def scenario() -> None:
        async with AsyncClient(running.url) as client:
            task = (await client.submit("echo", 1, delay=60)).task_id
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.2):
                    await client.result(task)
            await client.cancel(task)

    asyncio.run(scenario())


def test_a_cancelled_call_that_waits_for_a_connection_takes_none_from_others(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connecting, "CONNECTIONS", 1)

    async def scenario() -> None:
        async with AsyncClient(running.url) as other, AsyncClient(running.url, timeout=1) as client:
            task = (await other.submit("echo", 1, delay=600)).task_id
            waiting = asyncio.create_task(client.result(task))
            await asyncio.sleep(0.1)
            await cancelled(client.get(task))
            with pytest.raises(Unreachable, match=r"^all 1 connections of this client are in use"):
                await client.get(task)
            waiting.cancel()
            assert (await client.get(task)).status is TaskState.SCHEDULED
            await other.cancel(task)

    asyncio.run(scenario())


def test_a_cancelled_batch_leaves_no_sender(running: Running) -> None:
    async def scenario() -> None:
        async with AsyncClient(running.url) as client:
            feed = await client.batch(new_task("noop", n) for n in itertools.count())
            await cancelled(feed.drain())
            assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(scenario())


def test_who_stops_watching_closes_the_stream(running: Running, opened: Opened) -> None:
    async def scenario() -> None:
        async with AsyncClient(running.url) as client:
            task = (await client.submit("echo", 1, delay=60)).task_id
            async with aclosing(client.watch(task)) as stream:
                assert (await anext(stream)).status is TaskState.SCHEDULED
            await anext(stream := client.watch(task))
            await cancelled(_next(stream))
            await client.cancel(task)
        assert not any(each.usable for each in opened)
        assert len(opened) == 4, "each stream and what cannot be repeated have one of their own"

    asyncio.run(scenario())


def test_five_hundred_results_are_waited_for_over_a_bounded_number_of_connections(
    running: Running, opened: Opened
) -> None:
    async def scenario() -> None:
        async with AsyncClient(running.url) as client:
            await client.queues.pause("normal", "until all wait")
            sent = await client.batch([new_task("echo", n) for n in range(500)])
            ids = [item.task_id async for item in sent]
            results = [asyncio.create_task(client.result(each, timeout=120)) for each in ids if each]
            await asyncio.sleep(1)
            await client.submit("noop")
            assert not any(each.done() for each in results), "calls that wait leave connections to others"
            await client.queues.resume("normal")
            assert await asyncio.gather(*results) == list(range(500))
        assert len(opened) <= CONNECTIONS

    asyncio.run(scenario())


def test_another_loop_gets_connections_of_its_own(running: Running, opened: Opened) -> None:
    client = AsyncClient(running.url)
    for _ in range(2):
        asyncio.run(client.queues.all())
    assert len(opened) == 2
    asyncio.run(client.close())


def test_an_async_handler_submits_and_waits(running: Running) -> None:
    running.system.start_worker(TASK_MODULES="tests.support.handlers_concurrent", FIRMQ_URL=running.url)

    async def scenario() -> None:
        async with AsyncClient(running.url) as client:
            sent = await client.batch([new_task("asks", {"number": n}) for n in range(30)])
            results = [await client.result(item.task_id, timeout=60) async for item in sent if item.task_id]
            assert results == [n * 2 for n in range(30)]

    asyncio.run(scenario())


def test_a_key_that_would_be_another_header_is_refused() -> None:
    async def scenario() -> None:
        with socket.create_server(("127.0.0.1", 0)) as server:
            async with AsyncClient(f"http://127.0.0.1:{server.getsockname()[1]}") as client:
                with pytest.raises(ValueError, match="Invalid header value"):
                    await client.submit("echo", idempotency_key="a\r\nAuthorization: b")

    asyncio.run(scenario())


def test_who_does_not_use_it_does_not_import_asyncio() -> None:
    code = "import sys, firmq.shared.client as c; print('asyncio' in sys.modules, c.AsyncClient.__name__)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False AsyncClient\n"
