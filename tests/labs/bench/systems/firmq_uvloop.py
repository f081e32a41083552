# mypy: ignore-errors
# (As its neighbours: it runs in this adapter's own environment, from the checkout.)
"""This product as in `firmq`, with uvloop installed."""

from tests.labs.bench import adapter
from tests.labs.bench.systems import firmq
from tests.labs.bench.systems.firmq import enqueue, submit, unfinished, workers

__all__ = ["PACKAGES", "TITLE", "WORKLOADS", "enqueue", "submit", "unfinished", "workers"]

TITLE = "Firmq, uvloop"
PACKAGES = (*firmq.PACKAGES, "uvloop")
WORKLOADS = adapter.WAITING
