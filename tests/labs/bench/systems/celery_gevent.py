# mypy: ignore-errors
# (Celery is installed in this adapter's own environment only.)
"""Celery with its pool of greenlets (`-P gevent`), one worker for each process."""

from tests.labs.bench import adapter
from tests.labs.bench.systems import celery
from tests.labs.bench.systems.celery import enqueue, submit, unfinished

__all__ = ["PACKAGES", "TITLE", "WORKLOADS", "enqueue", "submit", "unfinished", "workers"]

TITLE = "Celery (gevent)"
PACKAGES = (*celery.PACKAGES, "gevent")
WORKLOADS = adapter.WAITING


def workers():
    return celery.pools("gevent")
