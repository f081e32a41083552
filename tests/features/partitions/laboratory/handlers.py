"""What the tasks of the laboratory do: they leave a line in a file, whole or not at all."""

from __future__ import annotations

import fcntl
import json
import os
import time
from pathlib import Path
from typing import Any

from firmq import current_task, task
from firmq.shared.domain.store_number import store_of_id


def _note(file: str, line: str) -> None:
    descriptor = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(descriptor, f"{line}\n".encode())
    finally:
        os.close(descriptor)


@task("mark", max_retries=20)
def mark(folder: str, seconds: float = 0.0) -> None:
    """Notes that it ran."""
    time.sleep(seconds)
    _note(f"{folder}/ran", current_task().id)


@task("bounded", max_retries=20)
def bounded(folder: str, limit: int, seconds: float) -> None:
    """Takes one of as many places as the limit has in this partition, which the system frees when a process dies.

    Notes when none is free.
    """
    number = store_of_id(current_task().id) or 0
    for at in range(limit):
        place = os.open(Path(folder) / f"place-{number}-{at}", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(place, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(place)
            continue
        try:
            os.pwrite(place, f"{current_task().id} since {time.time():.4f} in {os.getpid()}".ljust(80).encode(), 0)
            time.sleep(seconds)
        finally:
            os.close(place)
        _note(f"{folder}/ran", current_task().id)
        return
    _note(f"{folder}/too-many", current_task().id)
    _note(f"{folder}/ran", current_task().id)
    places = [(Path(folder) / f"place-{number}-{at}").read_text().strip() for at in range(limit)]
    _note(f"{folder}/../logs/too-many.log", json.dumps({**_now(), "held": places}))


def _now() -> dict[str, Any]:
    own = current_task()
    return {"time": f"{time.time():.4f}", "task": own.id, "attempt": own.attempt, "process": os.getpid()}


@task("nothing")
def nothing() -> None:
    """Does nothing."""
