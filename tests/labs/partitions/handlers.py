"""What the tasks of the laboratory do: they leave a line in a file, whole or not at all."""

from __future__ import annotations

import fcntl
import os
import time
from pathlib import Path

from taskqueue import current_task, task


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
    """Takes one of as many places as the limit has, which the system frees when a process dies; notes when none is."""
    for at in range(limit):
        place = os.open(Path(folder) / f"place-{at}", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(place, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(place)
            continue
        begun = time.time()
        try:
            time.sleep(seconds)
        finally:
            _note(f"{folder}/held", f"{begun:.4f} {time.time():.4f}")
            os.close(place)
        _note(f"{folder}/ran", current_task().id)
        return
    _note(f"{folder}/too-many", current_task().id)


@task("nothing")
def nothing() -> None:
    """Does nothing."""
