"""Handlers submit themselves to a gateway, from threads and in asyncio."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from firmq.shared.client import AsyncClient, Client, Refused, TaskState
from firmq.worker.handlers.examples.process import process
from tests.integration.client.conftest import Running


@pytest.fixture(autouse=True)
def environment(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FIRMQ_URL", running.url)


def test_a_handler_submits_a_task_to_the_gateway_of_the_environment(running: Running) -> None:
    task = process.options(tags=["typed"], priority="high").submit("to be or not to be")
    assert (task.type, task.queue, task.status) == ("process", "high", TaskState.PENDING)
    with Client(running.url) as client:
        assert client.result(task.task_id, 30)["words"] == 6
        assert client.get(task.task_id).tags == ("typed",)


def test_an_idempotency_key_is_sent() -> None:
    submission = process.options(idempotency_key="typed-1")
    assert submission.submit("once") == submission.submit("once")


def test_what_the_gateway_refuses_is_raised() -> None:
    with pytest.raises(Refused, match="priority"):
        process.options(priority="none").submit("to be")


def test_a_handler_submits_a_task_in_asyncio(running: Running) -> None:
    async def words() -> Any:
        task = await process.submit_async("one two")
        async with AsyncClient(running.url) as client:
            return (await client.result(task.task_id, 30))["words"]

    assert asyncio.run(words()) == asyncio.run(words()) == 2


def test_tasks_of_a_batch_are_made_by_their_handler(running: Running) -> None:
    with Client(running.url) as client:
        sent = client.batch([process.new_task("one"), process.options(delay=3600).new_task("two")])
        assert [item.status for item in sent] == [TaskState.PENDING, TaskState.SCHEDULED]
