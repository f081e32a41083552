"""Logging of all parts: one JSON object per line, or plain lines on a terminal.

Each entry of `extra` becomes a field (`log.info("done", extra={"task_id": id})`). Control characters are escaped, so
logged input cannot forge a line or control a terminal.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import TextIO

from firmq.shared import failpoints
from firmq.shared.observability.background_log import BackgroundHandler

_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName", "color_message"}
_CONTROL = {code: f"\\x{code:02x}" for code in (*range(0x20), 0x7F, *range(0x80, 0xA0))}
_CONTROL_BUT_LINES = {code: text for code, text in _CONTROL.items() if chr(code) not in "\n\t"}


Context = Callable[[], Mapping[str, object]]
"""Returns the context of a log line, such as task and trace; called for each line, whose own fields take precedence."""


def no_context() -> Mapping[str, object]:
    return {}


def configure(
    part: str,
    level: str,
    form: str = "auto",
    stream: TextIO | None = None,
    *,
    instance: str = "",
    app_version: str = "",
    in_background: bool = False,
    context: Context = no_context,
    export: str = "",
) -> None:
    """Configures logging to standard error; `form` is json, text, or auto (text on a terminal).

    `instance` distinguishes processes of one part in JSON lines, which also hold `app_version`. `in_background` is for
    processes in which logging must never block; a process that forks must not use it, because threads do not survive a
    fork. `export` is LOG_EXPORT.
    """
    out = stream or sys.stderr
    as_text = form == "text" or (form == "auto" and out.isatty())
    handler = BackgroundHandler(out.fileno()) if in_background else logging.StreamHandler(out)
    handler.setFormatter(TextLine(part, context) if as_text else JsonLine(part, instance, app_version, context))
    handlers: list[logging.Handler] = [handler]
    if export == "otlp":
        from firmq.shared.observability.otlp_logs import OTLPHandler

        handlers.append(OTLPHandler(part, instance, app_version, lambda record: _extras(record, context)))
    logging.basicConfig(handlers=handlers, level=level, force=True)
    failpoints.warn()


class JsonLine(logging.Formatter):
    """Formats a record as one line of JSON."""

    def __init__(self, part: str, instance: str = "", app_version: str = "", context: Context = no_context) -> None:
        super().__init__()
        self.part = part
        self.context = context
        about = {"instance": instance, "app_version": app_version}
        self.about = {name: value for name, value in about.items() if value}

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": _utc(record),
            "level": record.levelname,
            "part": self.part,
            **self.about,
            "logger": record.name,
            "message": record.getMessage(),
            **_extras(record, self.context),
        }
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False, default=str).translate(_CONTROL)


class TextLine(logging.Formatter):
    """Formats a record as text: time, level, part, message and fields."""

    def __init__(self, part: str, context: Context = no_context) -> None:
        super().__init__()
        self.part = part
        self.context = context

    def format(self, record: logging.LogRecord) -> str:
        fields = "".join(f" {name}={value}" for name, value in _extras(record, self.context).items())
        time = datetime.fromtimestamp(record.created).strftime("%H:%M:%S")  # noqa: DTZ006  # text lines show local time
        line = f"{time} {record.levelname:<7} {self.part}: {record.getMessage()}{fields}".translate(_CONTROL)
        if record.exc_info:
            line += "\n" + self.formatException(record.exc_info).translate(_CONTROL_BUT_LINES)
        return line


def _extras(record: logging.LogRecord, context: Context) -> dict[str, object]:
    found = {**context(), **{name: value for name, value in vars(record).items() if name not in _STANDARD}}
    return {name: value for name, value in found.items() if value is not None}


def _utc(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
