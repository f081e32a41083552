# mypy: ignore-errors
# (RQ is installed in this adapter's own environment only.)
"""Stock RQ with its default worker, which forks for every job: what its documentation advises for production.

`rq worker-pool -n 2` is the documented way to more than one worker. This module is also its config file (`-c`), which
imports the handlers before the fork, as the documentation's performance notes advise.
"""

import sys

from redis import Redis
from rq import Queue

from tests.labs.bench import adapter, handlers

TITLE = "RQ (fork worker)"
PACKAGES = ("rq", "redis")
WORKLOADS = adapter.BY_DEFAULT
REDIS_URL = adapter.REDIS_URL
QUEUES = ["default"]

redis = Redis.from_url(REDIS_URL)
queue = Queue("default", connection=redis)
result_ttl = adapter.KEEP_SECONDS if adapter.RESULTS_KEPT else 0


def workers(worker_class="rq.worker.Worker"):
    module = "tests.labs.bench.systems.rq_fork"
    count = str(adapter.PROCESSES)
    return [[sys.executable, "-m", "rq.cli", "worker-pool", "-q", "-n", count, "-w", worker_class, "-c", module]]


def enqueue(kind, calls):
    function = handlers.BLOCKING[kind]
    queue.enqueue_many(Queue.prepare_data(function, args=tuple(args), result_ttl=result_ttl) for args in calls)


def submit(kind, args):
    queue.enqueue(handlers.BLOCKING[kind], args=tuple(args), result_ttl=result_ttl)


def unfinished(enqueued):
    """RQ takes a job out of the started registry in the transaction that stores its result."""
    pipe = redis.pipeline(transaction=False)
    pipe.llen(queue.key).zcard("rq:wip:default").llen(queue.intermediate_queue_key)
    return sum(pipe.execute())
