# mypy: ignore-errors
# (As its neighbours: it runs in this adapter's own environment, from the checkout.)
"""This product: one worker with two executor processes, submission by the code behind the gateway's batch endpoint.

The record of a completed task is part of the product and is always kept for its retention; without results the
handlers return None, so only the value itself is spared.
"""

import functools
import inspect
import json
import sys

from firmq.shared.domain.task import NewTask, new_task_id
from firmq.shared.redis.client import connect
from firmq.shared.redis.scripts import Scripts
from firmq.shared.stores.queues import Queues
from firmq.worker.handlers.registry import task
from tests.labs.bench import adapter, handlers
from tests.support.keys import keys

TITLE = "Firmq"
PACKAGES = ("rq", "redis")
WORKLOADS = (*adapter.BY_DEFAULT, *adapter.WAITING)
QUEUE = "normal"

redis = connect(adapter.REDIS_URL)
queues = Queues(Scripts(redis), {QUEUE: 1})


def without_result(function):
    @functools.wraps(function)
    def call(**arguments):
        function(**arguments)

    return call


for kind, function in (handlers.ASYNC if adapter.SLOTS else handlers.BLOCKING).items():
    task(kind)(function if adapter.RESULTS_KEPT else without_result(function))
parameters = {kind: list(inspect.signature(function).parameters) for kind, function in handlers.BLOCKING.items()}


def workers():
    settings = {
        "REDIS_URL": adapter.REDIS_URL,
        "TASK_MODULES": "tests.labs.bench.systems.firmq",
        "WORKER_EXECUTORS": adapter.PROCESSES,
        "WORKER_METRICS_PORT": 0,
        "LOG_LEVEL": "WARNING",
    }
    if adapter.SLOTS:
        waiting = {"CONCURRENT_EXECUTORS": adapter.PROCESSES, "EXECUTOR_SLOTS": adapter.SLOTS}
        settings |= {**waiting, "WORKER_EXECUTORS": 1}
    return [["env", *(f"{name}={value}" for name, value in settings.items()), sys.executable, "-m", "firmq", "worker"]]


def new_task(kind, args):
    data = json.dumps(dict(zip(parameters[kind], args, strict=True)))
    return NewTask(id=new_task_id(), type=kind, data=data, queue=QUEUE)


@functools.cache
def start():
    """Once: makes known which types wait, as the worker before would have, since this one starts after the tasks."""
    if adapter.SLOTS:
        redis.sadd(
            keys.CONCURRENT_TYPES, *(kind for kind, each in handlers.ASYNC.items() if inspect.iscoroutinefunction(each))
        )


def enqueue(kind, calls):
    start()
    queues.submit([new_task(kind, args) for args in calls])


def submit(kind, args):
    enqueue(kind, [args])


def unfinished(enqueued):
    """The step that stores a result also enters the task here."""
    return enqueued - redis.zcard(keys.ended("completed"))
