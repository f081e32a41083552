# mypy: ignore-errors
# (RQ is installed in this adapter's own environment only.)
"""Stock RQ with SimpleWorker, which runs jobs in the worker itself: documented for very short, trusted jobs."""

from tests.labs.bench.systems import rq_fork
from tests.labs.bench.systems.rq_fork import PACKAGES, WORKLOADS, enqueue, submit, unfinished

__all__ = ["PACKAGES", "TITLE", "WORKLOADS", "enqueue", "submit", "unfinished", "workers"]

TITLE = "RQ (SimpleWorker)"


def workers():
    return rq_fork.workers("rq.worker.SimpleWorker")
