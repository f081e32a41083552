# mypy: ignore-errors
# (SAQ is installed in this adapter's own environment only.)
"""SAQ with two worker processes (`--workers 2`) of ten concurrent jobs each, its default."""

import sys

from redis import Redis
from saq import Job, Queue

from tests.labs.bench import adapter, handlers

TITLE = "SAQ"
PACKAGES = ("saq", "redis")
WORKLOADS = (*adapter.BY_DEFAULT, *adapter.WAITING)

queue = Queue.from_url(adapter.REDIS_URL)
redis = Redis.from_url(adapter.REDIS_URL)
ttl = adapter.KEEP_SECONDS if adapter.RESULTS_KEPT else -1


def with_context(function):
    """SAQ passes keyword arguments and a context; ours are by position."""

    async def call(context, *, args):
        return await function(*args)

    def block(context, *, args):
        return function(*args)

    return call if function.__name__.endswith("_async") else block


functions = [(kind, with_context(function)) for kind, function in handlers.ASYNC.items()]
settings = {"queue": queue, "functions": functions, "concurrency": adapter.SLOTS or 10}


def workers():
    return [[sys.executable, "-m", "saq", "tests.labs.bench.systems.saq.settings", "--workers", str(adapter.PROCESSES)]]


async def enqueue_all(kind, calls):
    for args in calls:
        await queue.enqueue(Job(kind, kwargs={"args": list(args)}, ttl=ttl))


def enqueue(kind, calls):
    adapter.wait(enqueue_all(kind, calls))


def submit(kind, args):
    enqueue(kind, [args])


def unfinished(enqueued):
    """A job leaves this set in the transaction that stores its result."""
    return redis.zcard("saq:default:incomplete")
