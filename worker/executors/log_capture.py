"""The log lines of attempts."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from taskqueue.worker.executors.recorder import Recorder
from taskqueue.worker.handlers.context import current


def of_current_task() -> Recorder | None:
    """Returns the recorder of the task that this thread or coroutine works for."""
    task = current.get()
    return task.recorder if task else None


class LogCapture(logging.Handler):
    """Records each log line on the attempt that it belongs to."""

    def __init__(self, find: Callable[[], Recorder | None] = of_current_task) -> None:
        super().__init__()
        self.find = find

    def emit(self, record: logging.LogRecord) -> None:
        recorder = self.find()
        if recorder is None or recorder.ended or not recorder.limit:
            return
        stamp = time.strftime("%H:%M:%S", time.gmtime(record.created))
        try:
            line = f"{stamp} {record.levelname} {record.getMessage()}"
        except Exception:
            line = f"{stamp} {record.levelname} (a log line that cannot be formatted: {record.msg!r})"
        recorder.add(line[: recorder.limit])
