# mypy: ignore-errors
# (Celery is installed in this adapter's own environment only.)
"""Celery with its default prefork pool of two child processes, Redis as broker and as result store.

Everything else is default: acknowledged before the run, four messages prefetched for each child. The documentation
advises more prefetch for nothing but short tasks and less for long ones; one configuration has to do all workloads.
"""

import sys

from celery import Celery
from redis import Redis

from tests.labs.bench import adapter, handlers

TITLE = "Celery (prefork)"
PACKAGES = ("celery", "kombu", "redis")
WORKLOADS = adapter.BY_DEFAULT

app = Celery("bench", broker=adapter.REDIS_URL, backend=adapter.REDIS_URL if adapter.RESULTS_KEPT else None)
app.conf.update(
    task_ignore_result=not adapter.RESULTS_KEPT,
    result_expires=adapter.KEEP_SECONDS,
    broker_connection_retry_on_startup=True,
    result_backend_thread_safe=bool(adapter.SLOTS),  # one pool of connections for all threads, as advised for many
)
tasks = {kind: app.task(name=kind)(function) for kind, function in handlers.BLOCKING.items()}
redis = Redis.from_url(adapter.REDIS_URL)
celery = [
    sys.executable,
    "-m",
    "celery",
    "-A",
    "tests.labs.bench.systems.celery:app",
    "worker",
    "--loglevel",
    "WARNING",
]


def workers():
    return [[*celery, "-c", str(adapter.PROCESSES)]]


def pools(pool):
    """A worker for each process: it has no option for more than one with these pools."""
    nodes = [["-n", f"node{number}@%h"] for number in range(adapter.PROCESSES)]
    return [[*celery, *node, "-P", pool, "-c", str(adapter.SLOTS)] for node in nodes]


def enqueue(kind, calls):
    for args in calls:
        submit(kind, args)


def submit(kind, args):
    tasks[kind].delay(*args)


def unfinished(enqueued):
    """A message is acknowledged before it runs, so the stored results decide where there are any."""
    waiting = redis.llen("celery") + redis.hlen("unacked")
    if waiting or not adapter.RESULTS_KEPT:
        return waiting
    return enqueued - sum(1 for _ in redis.scan_iter("celery-task-meta-*", count=10_000))
