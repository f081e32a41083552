"""The last log lines of an attempt: how many are kept."""

from __future__ import annotations

import logging
import sys
from typing import Any

import pytest

from firmq.worker.executors.log_capture import LogCapture
from firmq.worker.executors.recorder import LastLines, Recorder


@pytest.mark.parametrize(("line", "kept"), [("a" * 10, 3), ("é" * 10, 1), ("任" * 10, 1), ("\ud800" * 10, 3)])
def test_the_limit_is_in_bytes(line: str, kept: int) -> None:
    lines = LastLines()
    for _ in range(5):
        lines.add(line, 30)
    assert len(lines) == kept


@pytest.mark.parametrize(("limit", "kept"), [(0, 0), (30, 1)])
def test_lines_are_kept_within_the_limit_and_where_it_is_nothing_no_line_is(limit: int, kept: int) -> None:
    sent: list[tuple[int, str]] = []
    recorder = Recorder(7, limit, lambda number, line: sent.append((number, line)), lambda *about: None)
    tail = LogCapture(lambda: recorder)
    for _ in range(100):
        tail.handle(logging.LogRecord("x", logging.INFO, __file__, 1, "a line", None, None))
    assert len(recorder.lines) == kept
    assert {number for number, _ in sent} == ({7} if kept else set())


class Silent(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")

    __repr__ = __str__


def captured(message: Any, *arguments: Any, **options: Any) -> str:
    recorder = Recorder(7, 16384, lambda number, line: None, lambda *about: None)
    LogCapture(lambda: recorder).handle(
        logging.LogRecord("x", logging.ERROR, __file__, 1, message, arguments, **{"exc_info": None, **options})
    )
    [line] = recorder.lines
    return line.partition(" ")[2]


def test_the_traceback_of_a_logged_error_belongs_to_the_line() -> None:
    try:
        raise ConnectionError("partner 17 is away")
    except ConnectionError:
        line = captured("skipped", exc_info=sys.exc_info(), sinfo="Stack (most recent call last):")
    assert line.startswith("ERROR skipped\nTraceback")
    assert "test_the_traceback_of_a_logged_error" in line
    assert line.endswith("ConnectionError: partner 17 is away\nStack (most recent call last):")
    assert captured("skipped", exc_info=(None, None, None)) == "ERROR skipped"


def test_no_line_fails_the_task_that_logs_it() -> None:
    assert captured("%d orders", "many") == "ERROR (a log line that cannot be formatted: '%d orders')"
    assert captured(Silent()) == "ERROR (a log line that cannot be formatted: 'Silent')"
    assert captured("%s", Silent()) == "ERROR (a log line that cannot be formatted: '%s')"
    assert len(captured("skipped", exc_info=(ValueError, ValueError("x" * 100_000), None))) < 5000
