# mypy: ignore-errors
# (As its neighbours: it runs in this adapter's own environment, from the checkout.)
"""This product as in `taskqueue`, with uvloop installed."""

from tests.labs.bench import adapter
from tests.labs.bench.systems import taskqueue
from tests.labs.bench.systems.taskqueue import enqueue, submit, unfinished, workers

__all__ = ["PACKAGES", "TITLE", "WORKLOADS", "enqueue", "submit", "unfinished", "workers"]

TITLE = "Task Queue, uvloop"
PACKAGES = (*taskqueue.PACKAGES, "uvloop")
WORKLOADS = adapter.WAITING
