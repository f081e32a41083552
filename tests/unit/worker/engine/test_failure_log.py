"""A storm of failures costs a bounded number of log lines, and each attempt is counted in one of them."""

from __future__ import annotations

import pytest

from firmq.worker.engine import failure_log
from firmq.worker.engine.claimed_task import ClaimedTask
from firmq.worker.engine.failure_log import LINES_PER_SECOND, MOST_SUMMARIES, FailureLog
from firmq.worker.engine.redis_session import Report
from firmq.worker.executors.ipc import EndedAttempt
from tests.support.attempt_ends import ENDS


def report(kind: str = "retrying", error: str = "RuntimeError") -> Report:
    held = ClaimedTask(b"a1", b"normal", b"fail", b"", 1, 0, 0, 0, b"", b"", b"", 0, "t", 0, 0.0)
    delay_us = 5_000_000 if ENDS[kind][1] == "retrying" else None
    return Report(held, EndedAttempt(*ENDS[kind], b"", run_us=100_000, error_type=error, delay_us=delay_us))


def test_a_storm_is_summarized(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    clock = [100.0]
    log = FailureLog(lambda: clock[0])
    for _ in range(10_000):
        log.add(report())
    assert len(caplog.records) == LINES_PER_SECOND
    log.summarize(clock[0] + 1.0)
    summary = caplog.records[-1]
    assert len(caplog.records) == LINES_PER_SECOND + 1
    assert summary.__dict__["attempts"] == 10_000 - LINES_PER_SECOND
    assert "🔄" in summary.getMessage()
    clock[0] += 1.5
    log.add(report())
    assert len(caplog.records) == LINES_PER_SECOND + 2


def test_summaries_of_made_up_error_classes_are_bounded(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    log = FailureLog(lambda: 100.0)
    for number in range(5_000):
        log.add(report("failed", f"Error{number}"))
    log.close()
    lines = [each for each in caplog.records if each.name == failure_log.__name__]
    assert len(lines) == LINES_PER_SECOND + MOST_SUMMARIES + 1
    counted = sum(record.__dict__.get("attempts", 1) for record in lines)
    assert counted == 5_000


def test_what_completed_is_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    FailureLog().add(report("completed"))
    assert not caplog.records
