"""Direct submission, for threads and for asyncio, by a Redis user that may only submit."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from redis import Redis

from firmq import AsyncQueue, Queue
from firmq.shared.local.embedded_redis import EmbeddedRedis
from firmq.shared.stores.task_types import TaskType, TaskTypes
from tests.support.blocking import Blocking
from tests.support.keys import keys
from tests.support.least_privilege import SUBMITTER, url_of_user
from tests.support.relay import SpanForwarder

NOWHERE = "redis://127.0.0.1:1/0"

TYPES = (
    TaskType(name="process", schema={}),
    TaskType(
        name="resize",
        schema={
            "type": "object",
            "properties": {"url": {"type": "string"}, "sizes": {"type": "array", "items": {"type": "integer"}}},
            "required": ["url"],
            "additionalProperties": False,
        },
        retry={"max_retries": 7},
    ),
)
MakeQueue = Callable[..., Any]


@pytest.fixture
def submitter_url(redis_server: EmbeddedRedis, redis_client: Redis) -> str:
    """The address of an empty database with published types, for the user that may only submit."""
    TaskTypes(redis_client).publish(TYPES)
    return url_of_user(redis_server, SUBMITTER)


@pytest.fixture(scope="module")
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    """An event loop in a thread of its own."""
    running = asyncio.new_event_loop()
    thread = threading.Thread(target=running.run_forever, daemon=True)
    thread.start()
    yield running
    running.call_soon_threadsafe(running.stop)
    thread.join(5)
    running.close()


@pytest.fixture(params=["threads", "asyncio"])
def make_queue(
    request: pytest.FixtureRequest, submitter_url: str, loop: asyncio.AbstractEventLoop
) -> Iterator[MakeQueue]:
    """Makes queues of both kinds with the same methods."""
    made: list[Any] = []

    def make(url: str = submitter_url, **options: Any) -> Any:
        queue = Queue(url, **options) if request.param == "threads" else Blocking(AsyncQueue(url, **options), loop)
        made.append(queue)
        return queue

    yield make
    for each in made:
        if isinstance(each, Queue):
            each.close()
        else:
            asyncio.run_coroutine_threadsafe(each._target.close(), loop).result(10)


@pytest.fixture
def queue(make_queue: MakeQueue) -> Any:
    """A queue with the default settings."""
    return make_queue()


@pytest.fixture
def relay(submitter_url: str) -> Iterator[SpanForwarder]:
    """The way to Redis, which may lose answers."""
    way = SpanForwarder(submitter_url)
    yield way
    way.stop()


def stored(redis: Redis) -> int:
    return int(redis.zcard(keys.TASKS))
