"""The log lines of attempts."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from firmq.shared.domain.failure_fingerprint import class_name
from firmq.worker.executors.recorder import Recorder
from firmq.worker.handlers.context import current
from firmq.worker.handlers.errors import describe

_FORMATTER = logging.Formatter()
_LONGEST_TRACEBACK = 4000


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
        line = f"{stamp} {record.levelname} {_said(record)}"[: recorder.limit]
        try:
            if record.exc_info and record.exc_info[0]:
                line += f"\n{_FORMATTER.formatException(record.exc_info)[-_LONGEST_TRACEBACK:]}"
            if record.stack_info:
                line += f"\n{record.stack_info[-_LONGEST_TRACEBACK:]}"
        except Exception as error:  # the error that was logged may raise anything
            line += f"\n(a traceback that cannot be formatted: {describe(error)})"
        recorder.add(line[: recorder.limit])


def _said(record: logging.LogRecord) -> str:
    try:
        return record.getMessage()
    except Exception:
        shown = record.msg if isinstance(record.msg, str) else class_name(record.msg)
        return f"(a log line that cannot be formatted: {shown!r})"
