"""A wall clock that can be set: Python imports this when it starts, wherever this folder is on PYTHONPATH.

FAULTS_CLOCK names a file of eight bytes: by how many seconds the clock of a process and of all that it starts is
wrong. They may change at any moment. The monotonic clock is nobody's to set.
"""

from __future__ import annotations

import datetime
import mmap
import os
import struct
import time
from typing import Self


def _follow(path: str) -> None:
    with open(path, "rb") as file:
        offset = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    true, true_ns = time.time, time.time_ns
    real: type = datetime.datetime

    def seconds() -> float:
        return float(struct.unpack_from("d", offset)[0])

    class Kind(type):
        """What C makes is of the class that is replaced here."""

        def __instancecheck__(cls, thing: object) -> bool:
            return isinstance(thing, real)

    class Moved(datetime.datetime, metaclass=Kind):
        @classmethod
        def now(cls, tz: datetime.tzinfo | None = None) -> Self:
            return cls.fromtimestamp(time.time(), tz)

        @classmethod
        def utcnow(cls) -> Self:
            return cls.now(datetime.UTC).replace(tzinfo=None)

    time.time = lambda: true() + seconds()
    time.time_ns = lambda: true_ns() + int(seconds() * 1e9)
    datetime.datetime = Moved  # type: ignore[misc]


if "FAULTS_CLOCK" in os.environ:
    _follow(os.environ["FAULTS_CLOCK"])
