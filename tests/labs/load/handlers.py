"""The task type of the load: it notes when it was begun, outside Redis, and fails as often as it is told."""

from __future__ import annotations

import os
import struct
import time
from functools import cache

from firmq import current_task, task

START = struct.Struct("<ddd")
"""When it was sent, when this attempt began (both on the machine's monotonic clock), which attempt."""
STARTS = "starts"


@cache
def _starts() -> int:
    return os.open(os.path.join(os.environ["LOAD_FOLDER"], STARTS), os.O_WRONLY | os.O_APPEND | os.O_CREAT)


@task("load")
def load(sent: float, failures: int = 0) -> float:
    """Gives back what it got, after so many failures."""
    me = current_task()
    os.write(_starts(), START.pack(sent, time.monotonic(), me.attempt))
    if me.failures < failures:
        raise RuntimeError("as planned")
    return sent
