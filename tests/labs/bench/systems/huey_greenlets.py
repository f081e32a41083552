# mypy: ignore-errors
# (Huey is installed in this adapter's own environment only.)
"""Huey with greenlets (`-k greenlet`), which it advises for work that waits; one consumer for each process."""

import sys

from tests.labs.bench import adapter
from tests.labs.bench.systems import huey
from tests.labs.bench.systems.huey import enqueue, submit, unfinished

__all__ = ["PACKAGES", "TITLE", "WORKLOADS", "enqueue", "submit", "unfinished", "workers"]

TITLE = "Huey (greenlets)"
PACKAGES = (*huey.PACKAGES, "gevent")
WORKLOADS = adapter.WAITING


def workers():
    patched = [sys.executable, "-m", "gevent.monkey"]  # the consumer leaves that to the application
    return [[*patched, *command] for command in huey.workers("greenlet", adapter.SLOTS) * adapter.PROCESSES]
