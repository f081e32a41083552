"""The last log lines of an attempt: how many are kept."""

from __future__ import annotations

import logging

import pytest

from taskqueue.worker.executors.log_capture import LogCapture
from taskqueue.worker.executors.recorder import Recorder


@pytest.mark.parametrize(("limit", "kept"), [(0, 0), (30, 1)])
def test_lines_are_kept_within_the_limit_and_where_it_is_nothing_no_line_is(limit: int, kept: int) -> None:
    sent: list[tuple[int, str]] = []
    recorder = Recorder(7, limit, lambda number, line: sent.append((number, line)), lambda *about: None)
    tail = LogCapture(lambda: recorder)
    for _ in range(100):
        tail.handle(logging.LogRecord("x", logging.INFO, __file__, 1, "a line", None, None))
    assert len(recorder.lines) == kept
    assert {number for number, _ in sent} == ({7} if kept else set())
