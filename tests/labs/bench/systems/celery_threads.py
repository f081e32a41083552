# mypy: ignore-errors
# (Celery is installed in this adapter's own environment only.)
"""Celery with its pool of threads (`-P threads`), one worker for each process."""

from tests.labs.bench import adapter
from tests.labs.bench.systems import celery
from tests.labs.bench.systems.celery import enqueue, submit, unfinished

__all__ = ["PACKAGES", "TITLE", "WORKLOADS", "enqueue", "submit", "unfinished", "workers"]

TITLE = "Celery (threads)"
PACKAGES = celery.PACKAGES
WORKLOADS = adapter.WAITING


def workers():
    return celery.pools("threads")
