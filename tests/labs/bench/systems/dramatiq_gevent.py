# mypy: ignore-errors
# (Dramatiq is installed in this adapter's own environment only.)
"""Dramatiq with greenlets in place of threads: the command `dramatiq-gevent`."""

from tests.labs.bench import adapter
from tests.labs.bench.systems import dramatiq
from tests.labs.bench.systems.dramatiq import enqueue, submit, unfinished

__all__ = ["PACKAGES", "TITLE", "WORKLOADS", "enqueue", "submit", "unfinished", "workers"]

TITLE = "Dramatiq (gevent)"
PACKAGES = (*dramatiq.PACKAGES, "gevent")
WORKLOADS = adapter.WAITING


def workers():
    return dramatiq.workers([adapter.script("dramatiq-gevent")])
