"""The log lines of the running attempt."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable


class LogTail(logging.Handler):
    """Keeps the last log lines of the running attempt and tells the worker each, in case this process dies."""

    def __init__(self, limit: int, send: Callable[[str], None]) -> None:
        super().__init__()
        self.limit = limit
        self.send = send
        self.lines: deque[str] = deque()
        self.size = 0
        self.active = False

    def start(self) -> None:
        """Another attempt begins."""
        if self.lines:
            self.lines.clear()
            self.size = 0
        self.active = True

    def emit(self, record: logging.LogRecord) -> None:
        if not (self.active and self.limit):
            return
        stamp = time.strftime("%H:%M:%S", time.gmtime(record.created))
        try:
            line = f"{stamp} {record.levelname} {record.getMessage()}"[: self.limit]
        except Exception:
            line = f"{stamp} {record.levelname} (a log line that cannot be formatted: {record.msg!r})"[: self.limit]
        self.lines.append(line)
        self.size += len(line)
        while self.size > self.limit:
            self.size -= len(self.lines.popleft())
        self.send(line)
