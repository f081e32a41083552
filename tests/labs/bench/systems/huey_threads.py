# mypy: ignore-errors
# (Huey is installed in this adapter's own environment only.)
"""Huey with threads (`-k thread`), one consumer for each process."""

from tests.labs.bench import adapter
from tests.labs.bench.systems import huey
from tests.labs.bench.systems.huey import enqueue, submit, unfinished

__all__ = ["PACKAGES", "TITLE", "WORKLOADS", "enqueue", "submit", "unfinished", "workers"]

TITLE = "Huey (threads)"
PACKAGES = huey.PACKAGES
WORKLOADS = adapter.WAITING


def workers():
    return huey.workers("thread", adapter.SLOTS) * adapter.PROCESSES
