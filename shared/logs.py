"""Logging, the same in every part: a JSON object a line for machines, plain lines on a terminal.

Whatever is passed as `extra` becomes a field of its own (`log.info("done", extra={"task_id": id})`). Control
characters never reach the terminal or the collector, so a caller cannot forge a line or move a cursor.
"""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime
from typing import TextIO

_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName", "color_message"}
_CONTROL = {code: f"\\x{code:02x}" for code in (*range(0x20), 0x7F, *range(0x80, 0xA0))}
_CONTROL_BUT_LINES = {code: text for code, text in _CONTROL.items() if chr(code) not in "\n\t"}


def configure(part: str, level: str, form: str = "auto", stream: TextIO | None = None) -> None:
    """Sends everything that is logged to standard error; `form` is json, text, or auto (text on a terminal)."""
    out = stream or sys.stderr
    as_text = form == "text" or (form == "auto" and out.isatty())
    handler = logging.StreamHandler(out)
    handler.setFormatter(TextLine(part) if as_text else JsonLine(part))
    logging.basicConfig(handlers=[handler], level=level, force=True)


class JsonLine(logging.Formatter):
    """One JSON object a line."""

    def __init__(self, part: str) -> None:
        super().__init__()
        self.part = part

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": _utc(record),
            "level": record.levelname,
            "part": self.part,
            "logger": record.name,
            "message": record.getMessage(),
            **_extras(record),
        }
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False, default=str).translate(_CONTROL)


class TextLine(logging.Formatter):
    """Time, level, part, message, and the fields behind it."""

    def __init__(self, part: str) -> None:
        super().__init__()
        self.part = part

    def format(self, record: logging.LogRecord) -> str:
        fields = "".join(f" {name}={value}" for name, value in _extras(record).items() if value is not None)
        time = datetime.fromtimestamp(record.created).strftime("%H:%M:%S")  # noqa: DTZ006  # a person reads local time
        line = f"{time} {record.levelname:<7} {self.part}: {record.getMessage()}{fields}".translate(_CONTROL)
        if record.exc_info:
            line += "\n" + self.formatException(record.exc_info).translate(_CONTROL_BUT_LINES)
        return line


def _extras(record: logging.LogRecord) -> dict[str, object]:
    return {name: value for name, value in vars(record).items() if name not in _STANDARD}


def _utc(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
