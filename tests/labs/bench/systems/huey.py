# mypy: ignore-errors
# (Huey is installed in this adapter's own environment only.)
"""Huey with two worker processes (`-k process`), which its documentation advises for work that uses the processor.

RedisHuey pops with BRPOP: a task is out of Redis before it runs, and lost with a worker that is killed.
"""

from huey import RedisHuey
from redis import Redis

from tests.labs.bench import adapter, handlers

TITLE = "Huey"
PACKAGES = ("huey", "redis")
WORKLOADS = (*adapter.BY_DEFAULT, "submit")

huey = RedisHuey("bench", url=adapter.THREADS_URL, results=adapter.RESULTS_KEPT)
tasks = {kind: huey.task(name=kind)(function) for kind, function in handlers.BLOCKING.items()}
redis = Redis.from_url(adapter.REDIS_URL)


def workers(kind="process", count=adapter.PROCESSES):
    module = "tests.labs.bench.systems.huey.huey"
    return [[adapter.script("huey_consumer"), module, "-k", kind, "-w", str(count), "-q"]]


def enqueue(kind, calls):
    for args in calls:
        submit(kind, args)


def submit(kind, args):
    tasks[kind](*args)


def unfinished(enqueued):
    """Huey has no acknowledgement: with results they decide, without them an empty queue has to do."""
    if adapter.RESULTS_KEPT:
        return enqueued - redis.hlen(huey.storage.result_key)
    return redis.llen(huey.storage.queue_key)
