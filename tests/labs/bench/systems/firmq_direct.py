# mypy: ignore-errors
# (As its neighbours: it runs in this adapter's own environment, from the checkout.)
"""This product without a gateway: `Queue` validates a task and stores it, one in each call.

As with the others, a submission ends when Redis has the task; with CONFIRM_WRITES=true, when its file has it.
"""

import os

from firmq import Queue
from tests.labs.bench import adapter
from tests.labs.bench.systems import firmq as plain

TITLE = "Firmq, direct"
PACKAGES = plain.PACKAGES
WORKLOADS = ("submit",)
SETTINGS = {"confirm_writes": os.environ.get("CONFIRM_WRITES", "false")}

workers, enqueue, unfinished = plain.workers, plain.enqueue, plain.unfinished
queue = Queue(adapter.REDIS_URL, **SETTINGS)


def data_of(kind, args):
    return dict(zip(plain.parameters[kind], args, strict=True))


def submit(kind, args):
    queue.submit(kind, data_of(kind, args))
