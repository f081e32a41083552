# mypy: ignore-errors
# (As its neighbours: it runs in this adapter's own environment, from the checkout.)
"""Jobs that stock RQ enqueues, run by a worker of this product in place of RQ's: RQ_QUEUES."""

import sys

from tests.labs.bench import adapter
from tests.labs.bench.systems import rq_fork
from tests.labs.bench.systems.rq_fork import PACKAGES, enqueue, submit

__all__ = ["PACKAGES", "TITLE", "WORKLOADS", "enqueue", "submit", "unfinished", "workers"]

TITLE = "RQ's jobs on Firmq"
WORKLOADS = ("drain", "idle", "busy")


def workers():
    settings = {
        "REDIS_URL": adapter.REDIS_URL,
        "RQ_QUEUES": "default",
        "RQ_ALLOW": "tests.labs.bench.handlers.*",
        "RQ_PICKLE": "true",
        "WORKER_EXECUTORS": adapter.PROCESSES,
        "WORKER_METRICS_PORT": 0,
        "LOG_LEVEL": "WARNING",
    }
    return [["env", *(f"{name}={value}" for name, value in settings.items()), sys.executable, "-m", "firmq", "worker"]]


def unfinished(enqueued):
    """The step that stores a result also enters the job here, as RQ's own worker does."""
    return enqueued - rq_fork.redis.zcard("rq:finished:default")
