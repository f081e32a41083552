"""Log lines: one line each, with their fields, and nothing in them that could deceive a reader."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator

import pytest

from shared import logs


@pytest.fixture
def stream() -> Iterator[io.StringIO]:
    root = logging.getLogger()
    before, level = root.handlers[:], root.level
    yield io.StringIO()
    root.handlers[:] = before
    root.setLevel(level)


def test_a_line_is_one_json_object_with_its_fields(stream: io.StringIO) -> None:
    logs.configure("worker", "INFO", "json", stream)
    logging.getLogger("x").info("task %s done 🔄", "t1", extra={"task_id": "t1"})
    line = json.loads(stream.getvalue())
    assert line["time"].endswith("Z")
    assert (line["level"], line["part"], line["message"], line["task_id"]) == (
        "INFO",
        "worker",
        "task t1 done 🔄",
        "t1",
    )
    assert "🔄" in stream.getvalue()


@pytest.mark.parametrize("form", ["json", "text"])
def test_control_characters_cannot_forge_lines_or_move_cursors(stream: io.StringIO, form: str) -> None:
    logs.configure("gateway", "INFO", form, stream)
    logging.getLogger("x").info("a\r\nb\x1b[31m\x9b2J\x7f", extra={"path": "c\nd"})
    assert stream.getvalue().count("\n") == 1
    assert not set(stream.getvalue()) & set("\r\x1b\x9b\x7f")


def test_an_error_keeps_its_traceback(stream: io.StringIO) -> None:
    logs.configure("gateway", "INFO", "json", stream)
    try:
        raise ValueError("no")
    except ValueError:
        logging.getLogger("x").exception("it failed")
    assert "ValueError: no" in json.loads(stream.getvalue())["traceback"]


def test_the_level_is_kept_to_and_configuring_twice_writes_once(stream: io.StringIO) -> None:
    logs.configure("gateway", "DEBUG", "text", stream)
    logs.configure("gateway", "WARNING", "text", stream)
    logging.getLogger("x").info("quiet")
    logging.getLogger("x").warning("loud", extra={"queue": "high"})
    assert "quiet" not in stream.getvalue()
    assert stream.getvalue().endswith("WARNING gateway: loud queue=high\n")


def test_what_a_process_is_about_is_in_every_line_and_a_terminal_is_spared_the_instance(
    stream: io.StringIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logs, "about", lambda: {"task_id": "t1", "attempt": 2, "span_id": None})
    logs.configure("worker", "INFO", "json", stream, instance="w-1")
    logging.getLogger("x").info("one")
    logging.getLogger("x").info("two", extra={"task_id": "t2"})
    first, second = map(json.loads, stream.getvalue().splitlines())
    assert (first["instance"], first["task_id"], first["attempt"]) == ("w-1", "t1", 2)
    assert "span_id" not in first
    assert second["task_id"] == "t2", "the line itself knows best"
    stream.truncate(0)
    stream.seek(0)
    logs.configure("worker", "INFO", "text", stream, instance="w-1")
    logging.getLogger("x").info("one")
    assert stream.getvalue().endswith("INFO    worker: one task_id=t1 attempt=2\n")
