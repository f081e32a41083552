# mypy: ignore-errors
# (Taskiq is installed in this adapter's own environment only.)
"""Taskiq with the broker and result store of taskiq-redis' first example: RedisStreamBroker, acknowledged when saved.

Two worker processes, which is the default. (Its list broker is faster, but takes a task out of Redis before it runs.)
"""

import functools
import sys

from redis import Redis
from taskiq_redis import RedisAsyncResultBackend, RedisStreamBroker

from tests.labs.bench import adapter, handlers

TITLE = "Taskiq (stream)"
PACKAGES = ("taskiq", "taskiq-redis", "redis")
WORKLOADS = (*adapter.BY_DEFAULT, *adapter.WAITING)

broker = RedisStreamBroker(url=adapter.REDIS_URL)
if adapter.RESULTS_KEPT:
    broker = broker.with_result_backend(RedisAsyncResultBackend(adapter.REDIS_URL, result_ex_time=adapter.KEEP_SECONDS))
tasks = {kind: broker.task(task_name=kind)(function) for kind, function in handlers.ASYNC.items()}
redis = Redis.from_url(adapter.REDIS_URL, decode_responses=True)


def workers():
    module = "tests.labs.bench.systems.taskiq:broker"
    taskiq = [sys.executable, "-m", "taskiq", "worker", module]
    slots = ["--max-async-tasks", str(adapter.SLOTS or 100)]
    return [[*taskiq, "--workers", str(adapter.PROCESSES), *slots, "--log-level", "WARNING"]]


@functools.cache
def start():
    """Once: the consumer group begins at the end of the stream, so it has to exist before the first task is sent."""
    adapter.wait(broker.startup())


async def kick_all(kind, calls):
    for args in calls:
        await tasks[kind].kiq(*args)


def enqueue(kind, calls):
    start()
    adapter.wait(kick_all(kind, calls))


def submit(kind, args):
    enqueue(kind, [args])


def unfinished(enqueued):
    """An entry is acknowledged after its result was stored; `lag` counts those not yet delivered."""
    (group,) = redis.xinfo_groups("taskiq")
    return group["pending"] + (group["lag"] or 0)
