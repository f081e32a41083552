"""Logging, the same in every part: a JSON object a line for machines, plain lines on a terminal.

Whatever is passed as `extra` becomes a field of its own (`log.info("done", extra={"task_id": id})`). Control
characters never reach the terminal or the collector, so a caller cannot forge a line or move a cursor.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import TextIO

from shared import failpoints
from shared.observability.background_log import BackgroundHandler

_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName", "color_message"}
_CONTROL = {code: f"\\x{code:02x}" for code in (*range(0x20), 0x7F, *range(0x80, 0xA0))}
_CONTROL_BUT_LINES = {code: text for code, text in _CONTROL.items() if chr(code) not in "\n\t"}


def nothing_more() -> Mapping[str, object]:
    return {}


about: Callable[[], Mapping[str, object]] = nothing_more
"""What this process is about when it writes a line: the task, the trace. Asked for each line, so it costs nothing else.

A part that knows puts its own answer here; fields of the line itself win over it.
"""


def configure(
    part: str,
    level: str,
    form: str = "auto",
    stream: TextIO | None = None,
    *,
    instance: str = "",
    in_background: bool = False,
) -> None:
    """Sends everything that is logged to standard error; `form` is json, text, or auto (text on a terminal).

    `instance` tells processes of one part from each other; on a terminal it would only be in the way. `in_background`
    is for a process in which logging must never block; one that forks must not use it, as threads do not survive that.
    """
    out = stream or sys.stderr
    as_text = form == "text" or (form == "auto" and out.isatty())
    handler = BackgroundHandler(out.fileno()) if in_background else logging.StreamHandler(out)
    handler.setFormatter(TextLine(part) if as_text else JsonLine(part, instance))
    logging.basicConfig(handlers=[handler], level=level, force=True)
    failpoints.warn()


class JsonLine(logging.Formatter):
    """One JSON object a line."""

    def __init__(self, part: str, instance: str = "") -> None:
        super().__init__()
        self.part = part
        self.instance = {"instance": instance} if instance else {}

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": _utc(record),
            "level": record.levelname,
            "part": self.part,
            **self.instance,
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
        fields = "".join(f" {name}={value}" for name, value in _extras(record).items())
        time = datetime.fromtimestamp(record.created).strftime("%H:%M:%S")  # noqa: DTZ006  # a person reads local time
        line = f"{time} {record.levelname:<7} {self.part}: {record.getMessage()}{fields}".translate(_CONTROL)
        if record.exc_info:
            line += "\n" + self.formatException(record.exc_info).translate(_CONTROL_BUT_LINES)
        return line


def _extras(record: logging.LogRecord) -> dict[str, object]:
    found = {**about(), **{name: value for name, value in vars(record).items() if name not in _STANDARD}}
    return {name: value for name, value in found.items() if value is not None}


def _utc(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
