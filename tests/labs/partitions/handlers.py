"""What the tasks of the laboratory do: they leave a line in a file, whole or not at all."""

from __future__ import annotations

import fcntl
import json
import os
import time
from pathlib import Path
from typing import Any

from redis.exceptions import RedisError

from firmq import current_task, task
from firmq.shared.config.settings import load
from firmq.shared.redis.client import connect, keys_of


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
            os.pwrite(place, f"{current_task().id} since {begun:.4f} in {os.getpid()}".ljust(80).encode(), 0)
            time.sleep(seconds)
        finally:
            _note(f"{folder}/held", f"{begun:.4f} {time.time():.4f}")
            os.close(place)
        _note(f"{folder}/ran", current_task().id)
        return
    _note(f"{folder}/too-many", current_task().id)
    _note(f"{folder}/ran", current_task().id)
    places = [(Path(folder) / f"place-{at}").read_text().strip() for at in range(limit)]
    _note(f"{folder}/../logs/too-many.log", json.dumps({**_now(), "held": places, "shares": _shares()}))


def _now() -> dict[str, Any]:
    own = current_task()
    return {"time": f"{time.time():.4f}", "task": own.id, "attempt": own.attempt, "process": os.getpid()}


def _shares() -> dict[str, Any]:
    """What each partition has and uses of the limit at this moment."""
    found: dict[str, Any] = {}
    for number, own in load().partitions.items():
        try:
            with connect(own.store_url, timeout=0.3, retries=0) as redis:
                keys = keys_of(redis)
                pipeline = redis.pipeline()
                pipeline.hgetall(keys.LIMIT_SHARES)
                pipeline.smembers(keys.slots("type:bounded"))
                found[str(number)] = repr(pipeline.execute())
        except RedisError as error:
            found[str(number)] = str(error)
    return found


@task("nothing")
def nothing() -> None:
    """Does nothing."""
