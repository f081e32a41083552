"""A log handler that never blocks the thread that logs: another thread writes, lines beyond a bound are counted."""

from __future__ import annotations

import contextlib
import logging
import os
import queue
import select
import threading
import time

MOST_LINES = 10_000
"""Lines that wait for a reader of the log; further ones are dropped."""
FLUSH_SECONDS = 1.0
"""How long a process that ends waits until its last lines are written."""


class BackgroundHandler(logging.Handler):
    """Writes formatted lines to a file descriptor.

    Standard error is a pipe in containers and under supervisors. When nobody reads it, a plain handler blocks in the
    middle of whatever its thread does. The descriptor is written to directly: a lock of `sys.stderr` that a blocked
    thread held would keep the process from ending.
    """

    def __init__(self, fd: int) -> None:
        super().__init__()
        self.fd = fd
        self.dropped = 0
        self._waiting: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        self._accepted = self._done = 0
        threading.Thread(target=self._run, name="log", daemon=True).start()

    def emit(self, record: logging.LogRecord) -> None:
        if self._waiting.qsize() >= MOST_LINES:
            self.dropped += 1
            return
        try:
            line = self.format(record)
        except Exception:
            self.handleError(record)
            return
        self._accepted += 1
        self._waiting.put(line.encode("utf-8", "backslashreplace") + b"\n")

    def flush(self) -> None:
        """Waits a moment until everything is written."""
        end = time.monotonic() + FLUSH_SECONDS
        while self._done < self._accepted and time.monotonic() < end:
            time.sleep(0.005)

    def _run(self) -> None:
        while True:
            line = self._waiting.get()
            if self.dropped:
                dropped, self.dropped = self.dropped, 0
                line = b"(%d log lines were dropped: the log is not read fast enough)\n" % dropped + line
            self._write(line)
            self._done += 1

    def _write(self, data: bytes) -> None:
        with contextlib.suppress(OSError):  # the reader of the log is gone: nothing can be said there any more
            while data:
                try:
                    data = data[os.write(self.fd, data) :]
                except BlockingIOError:  # whoever started this process made the pipe so
                    select.select([], [self.fd], [])
