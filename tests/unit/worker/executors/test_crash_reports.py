"""What the worker makes of a task by itself, where the record was corrupt."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import timedelta
from types import SimpleNamespace
from typing import cast

import pytest

from firmq.shared.domain.clock import to_us
from firmq.shared.domain.retry import RetryPolicy
from firmq.shared.redis.linker import sources
from firmq.worker.engine.claimed_task import ClaimedTask, ClaimReply, read_claim
from firmq.worker.engine.redis_session import Report
from firmq.worker.executors.crash_reports import MAX_LOSSES, CrashReports
from firmq.worker.executors.pool import ExecutorPool

GENERAL = RetryPolicy(initial_delay=7)


def claimed(retry: bytes, score: bytes) -> ClaimedTask:
    return read(retry=retry, enqueued_us=score)


def read(**changed: object) -> ClaimedTask:
    """Returns a task as `claim.lua` gives it, with some values changed."""
    fields = re.findall(r"'(\w+)'", sources()["_task_fields"].partition("{")[2])
    counts = dict.fromkeys(("failures", "crashes", "losses", "suspicions"), 0)
    values = {**dict.fromkeys(fields, b""), **counts, "attempt": 1, "id": b"t", "rq_job": (), **changed}
    reply = ClaimReply(b"0", [], 0, [[values[name] for name in fields]], -1, [name.encode() for name in fields])
    [task] = read_claim(reply, "k", 0, 0, 9)
    return task


def test_a_negative_count_of_a_damaged_record_is_none() -> None:
    task = read(attempt=-1, failures=-2, crashes=-7, losses=-(2**63), suspicions=-1)
    assert (task.attempt, task.failures, task.crashes, task.losses, task.suspicions) == (0, 0, 0, 0, 0)
    assert read(losses=-7, suspicions=1).company(8) == 4


def crash_reports() -> CrashReports:
    return CrashReports("w", GENERAL, max_crashes=3, pool=cast("ExecutorPool", SimpleNamespace(types={})))


def reports(retry: bytes) -> Iterator[Report]:
    yield crash_reports().timed_out(claimed(retry, b"5"), 0)
    yield crash_reports().crashed(claimed(retry, b"5"), 0, "killed")


@pytest.mark.parametrize(
    "retry",
    [b'{"initial_delay": NaN}', b'{"initial_delay": "x"}', b'{"max_retries": 1e999}', b"[" * 100_000, b"\xff", b"[1]"],
)
def test_a_corrupt_retry_policy_becomes_the_default_with_a_warning(
    retry: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    assert {report.ended.delay_us for report in reports(retry)} == {to_us(timedelta(seconds=7))}
    assert caplog.text.count("task t: corrupt retry policy") == 2


def test_a_policy_of_its_own_holds() -> None:
    assert {report.ended.delay_us for report in reports(b'{"initial_delay": 2}')} == {2_000_000}


@pytest.mark.parametrize(
    ("losses", "ran", "kind", "then"),
    [
        (0, 1.0, "interrupted", 1),
        (7, 59.0, "interrupted", 8),
        (19, 61.0, "interrupted", 0),
    ],
)
def test_stops_of_its_workers_soon_after_it_began_are_counted_and_a_longer_run_begins_anew(
    losses: int, ran: float, kind: str, then: int
) -> None:
    task = claimed(b"", b"5")
    task.losses = losses
    ended = crash_reports().stopped(task, 100.0, 100.0 + ran).ended
    assert (ended.outcome, ended.losses, ended.enqueued_us) == (kind, then, 5)


def test_the_twentieth_stop_in_a_row_is_a_poison_task() -> None:
    task = claimed(b"", b"5")
    task.losses = MAX_LOSSES - 1
    ended = crash_reports().stopped(task, 100.0, 101.0).ended
    assert (ended.outcome, ended.state, ended.error_type) == ("interrupted", "failed", "PoisonTask")


def test_interruptions_for_other_reasons_leave_the_count_alone() -> None:
    ended = crash_reports().interrupted(claimed(b"", b"5"), 100.0, "lease").ended
    assert (ended.losses, ended.suspicions) == (None, None)


@pytest.mark.parametrize("score", [b"inf", b"-inf", b"1e300", b"nan", b""])
def test_a_score_that_is_no_moment_is_none(score: bytes) -> None:
    assert claimed(b"", score).enqueued_us == 0
