"""Log lines: one line each, with their fields, and nothing in them that could deceive a reader."""

from __future__ import annotations

import io
import json
import logging
import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from firmq.shared.observability import logs
from tests.support.harness import ROOT


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
    stream: io.StringIO,
) -> None:
    context = {"task_id": "t1", "attempt": 2, "span_id": None}
    logs.configure("worker", "INFO", "json", stream, instance="w-1", app_version="a1b2c3d", context=lambda: context)
    logging.getLogger("x").info("one")
    logging.getLogger("x").info("two", extra={"task_id": "t2"})
    first, second = map(json.loads, stream.getvalue().splitlines())
    assert (first["instance"], first["task_id"], first["attempt"]) == ("w-1", "t1", 2)
    assert first["app_version"] == "a1b2c3d"
    assert "span_id" not in first
    assert second["task_id"] == "t2", "the line itself knows best"
    stream.truncate(0)
    stream.seek(0)
    logs.configure("worker", "INFO", "text", stream, instance="w-1", context=lambda: context)
    logging.getLogger("x").info("one")
    assert stream.getvalue().endswith("INFO    worker: one task_id=t1 attempt=2\n")


def test_an_unread_log_blocks_neither_writing_nor_exit() -> None:
    code = (
        "import logging, time; from firmq.shared.observability import logs\n"
        "logs.configure('worker', 'INFO', 'json', in_background=True)\n"
        "for number in range(20_000): logging.getLogger('x').info('line %d', number)\n"
        "print('done', flush=True)"
    )
    reader, writer = os.pipe()
    try:
        process = subprocess.run(
            [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=writer, cwd=ROOT, timeout=60, check=True
        )
        assert process.stdout == b"done\n"
    finally:
        os.close(reader)
        os.close(writer)


def test_the_last_lines_of_a_process_are_written_in_order_and_dropped_ones_are_counted() -> None:
    code = (
        "import logging; from firmq.shared.observability import background_log, logs\n"
        "background_log.MOST_LINES = 100\n"
        "logs.configure('worker', 'INFO', 'json', in_background=True)\n"
        "import sys; sys.setswitchinterval(1000)\n"
        "for number in range(500): logging.getLogger('x').info('line %d', number)\n"
        "sys.setswitchinterval(0.005); logging.shutdown(); logging.getLogger('x').info('last')"
    )
    process = subprocess.run([sys.executable, "-c", code], stderr=subprocess.PIPE, cwd=ROOT, timeout=60, check=True)
    lines = process.stderr.decode().splitlines()
    numbers = [int(line.partition("line ")[2].partition('"')[0]) for line in lines if '"message": "line' in line]
    assert numbers == sorted(numbers)
    [dropped] = [int(line.split()[0].strip("(")) for line in lines if "were dropped" in line]
    assert dropped + len(numbers) == 500
    assert '"message": "last"' in lines[-1]
