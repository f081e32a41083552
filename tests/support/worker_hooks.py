"""Hooks of a worker's main process."""

from __future__ import annotations

import os
from pathlib import Path

from firmq import WorkerContext, worker_started, worker_stopping


@worker_started
async def announce(worker: WorkerContext) -> None:
    """Notes that the worker starts, or fails."""
    if os.environ.get("TEST_HOOKS_WRONG") == "raise":
        raise ConnectionError("no registry")
    _note(f"started {worker.name} {len(worker.queues)}")


@worker_stopping
def withdraw(worker: WorkerContext) -> None:
    """Notes that the worker stops."""
    _note(f"stopped {worker.name}")


def _note(line: str) -> None:
    with Path(os.environ["TEST_HOOKS_FILE"]).open("a") as file:
        file.write(f"{line}\n")
