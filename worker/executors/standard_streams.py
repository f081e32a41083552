"""Standard output and error of an executor: a log that cannot be written fails no task."""

from __future__ import annotations

import contextlib
import io
import sys
from typing import Any, TextIO


class _File(io.FileIO):
    """A file that drops what it cannot write: the reader of the pipe is gone, the terminal, or room on the disk."""

    def write(self, data: Any, /) -> int:
        written: int | None = None  # as for a pipe that is full and must not block
        with contextlib.suppress(OSError):
            written = super().write(data)
        return memoryview(data).nbytes if written is None else written


def never_fail() -> None:
    """Replaces sys.stdout and sys.stderr by streams to the same files that never fail."""
    sys.stdout = _never_failing(sys.stdout, 1)
    sys.stderr = _never_failing(sys.stderr, 2)


def _never_failing(stream: TextIO, descriptor: int) -> TextIO:
    file: Any = _File(descriptor, "w", closefd=False)
    unbuffered = bool(getattr(stream, "write_through", False))
    return io.TextIOWrapper(
        file if unbuffered else io.BufferedWriter(file),
        encoding=stream.encoding,
        errors=stream.errors,
        line_buffering=bool(getattr(stream, "line_buffering", False)),
        write_through=unbuffered,
    )
