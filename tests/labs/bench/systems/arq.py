# mypy: ignore-errors
# (ARQ is installed in this adapter's own environment only.)
"""ARQ: two worker processes, started as two commands, as it has no option for more than one.

A hundred jobs at a time ("potentially hundreds", says its documentation): with the default of ten, polling twice a
second is all that is measured. The polling itself is the default. Work that would block the loop goes to an executor,
as its documentation shows.
"""

import asyncio
import functools
import sys

from arq import create_pool, func
from arq.connections import RedisSettings
from redis import Redis

from tests.labs.bench import adapter, handlers

TITLE = "ARQ"
PACKAGES = ("arq", "redis")
WORKLOADS = (*adapter.BY_DEFAULT, *adapter.WAITING)


def with_context(function):
    async def call(context, *args):
        return await function(*args)

    async def block(context, *args):
        return await asyncio.get_running_loop().run_in_executor(None, function, *args)

    return call if function.__name__.endswith("_async") else block


class WorkerSettings:
    max_jobs = adapter.SLOTS or 100
    functions = tuple(func(with_context(function), name=kind) for kind, function in handlers.ASYNC.items())
    redis_settings = RedisSettings.from_dsn(adapter.REDIS_URL)
    keep_result = adapter.KEEP_SECONDS if adapter.RESULTS_KEPT else 0


redis = Redis.from_url(adapter.REDIS_URL)


def workers():
    quiet = ["--custom-log-dict", "tests.labs.bench.systems.arq.QUIET"]
    command = [sys.executable, "-m", "arq", "tests.labs.bench.systems.arq.WorkerSettings", *quiet]
    return [command] * adapter.PROCESSES


QUIET = {"version": 1, "loggers": {"arq": {"level": "WARNING"}}}


@functools.cache
def pool():
    return adapter.wait(create_pool(WorkerSettings.redis_settings))


async def enqueue_all(connection, kind, calls):
    for args in calls:
        await connection.enqueue_job(kind, *args)


def enqueue(kind, calls):
    adapter.wait(enqueue_all(pool(), kind, calls))


def submit(kind, args):
    enqueue(kind, [args])


def unfinished(enqueued):
    """A job leaves the queue's set in the transaction that stores its result."""
    return redis.zcard("arq:queue")
