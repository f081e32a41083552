"""Standard output and error of an executor: a log that cannot be written fails no task."""

from __future__ import annotations

import contextlib
import io
import select
import sys
from typing import Any, TextIO

_PATIENCE_MS = 500
"""Milliseconds for which the reader of a full pipe is waited for; less than an event loop's blockage."""


class _File(io.FileIO):
    """A file that drops output that it cannot write: to a closed pipe or terminal, or to a full disk."""

    def __init__(self, descriptor: int) -> None:
        super().__init__(descriptor, "w", closefd=False)
        self._dropped = 0

    def write(self, data: Any, /) -> int:
        view = memoryview(data).cast("B")
        waiting = select.poll()  # its own: threads may write at the same time, and none may share one
        waiting.register(self.fileno(), select.POLLOUT)
        with contextlib.suppress(OSError):
            for at in range(0, len(view), select.PIPE_BUF):  # there is room for as much if there is any
                if not waiting.poll(0 if self._dropped else _PATIENCE_MS):
                    self._dropped += len(view) - at
                    break
                if self._dropped:
                    note, self._dropped = f"\n({self._dropped} bytes of output were dropped: nothing read it)\n", 0
                    super().write(note.encode())
                super().write(view[at : at + select.PIPE_BUF])
        return len(view)


def never_fail() -> None:
    """Replaces sys.stdout and sys.stderr by streams to the same files that never fail."""
    sys.stdout = _never_failing(sys.stdout, 1)
    sys.stderr = _never_failing(sys.stderr, 2)


def _never_failing(stream: TextIO, descriptor: int) -> TextIO:
    file: Any = _File(descriptor)
    unbuffered = bool(getattr(stream, "write_through", False))
    return io.TextIOWrapper(
        file if unbuffered else io.BufferedWriter(file),
        encoding=stream.encoding,
        errors=stream.errors,
        line_buffering=bool(getattr(stream, "line_buffering", False)),
        write_through=unbuffered,
    )
