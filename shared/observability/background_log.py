"""A log handler that never blocks: another thread writes the lines; lines beyond a bound are dropped and counted."""

from __future__ import annotations

import contextlib
import logging
import os
import queue
import select
import threading
import time

MOST_LINES = 10_000
"""Maximum lines waiting to be written; further ones are dropped."""
FLUSH_SECONDS = 1.0
"""Seconds for which an ending process waits until its last lines are written."""


class BackgroundHandler(logging.Handler):
    """Writes formatted lines to a file descriptor.

    Standard error is a pipe in containers and under supervisors. When the pipe is full because it is not read, a plain
    handler blocks its thread. The descriptor is written to directly, because a lock of `sys.stderr` held by a blocked
    thread would prevent the process from ending.
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
        """Waits until all lines are written, at most FLUSH_SECONDS."""
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
        with contextlib.suppress(OSError):  # the reader of the log has closed the pipe
            while data:
                try:
                    data = data[os.write(self.fd, data) :]
                except BlockingIOError:  # the parent process made the pipe non-blocking
                    select.select([], [self.fd], [])
