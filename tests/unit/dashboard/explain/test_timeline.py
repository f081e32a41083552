"""The bars of a task's page: what they say, and where they stand."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from firmq.dashboard.explain.timeline import MOST_ATTEMPTS, timeline
from firmq.shared.domain.task import (
    SUSPENDED,
    Attempt,
    ErrorInfo,
    InnerSpan,
    Outcome,
    TaskDetail,
    TaskState,
    TaskSummary,
)

BEGUN = datetime(2026, 11, 21, 9, 0, tzinfo=UTC)


def at(seconds: float) -> datetime:
    return BEGUN + timedelta(seconds=seconds)


def attempt(number: int, enqueued: float, started: float, ended: float | None, **more: Any) -> Attempt:
    times: dict[str, Any] = {
        "enqueued_at": at(enqueued),
        "started_at": at(started),
        "ended_at": None if ended is None else at(ended),
    }
    outcome = more.pop("outcome", Outcome.COMPLETED if ended is not None else None)
    return Attempt(number=number, worker="w", outcome=outcome, **times, **more)


def task(state: TaskState, *attempts: Attempt, ended: float | None = None) -> TaskDetail:
    summary = TaskSummary(
        id="t",
        type="process",
        state=state,
        queue="normal",
        attempt=len(attempts),
        failures=0,
        crashes=0,
        created_at=BEGUN,
        ended_at=None if ended is None else at(ended),
    )
    return TaskDetail(summary=summary, data=None, attempts=attempts)


FAILED = {"outcome": Outcome.FAILED}
SLEPT = {"outcome": Outcome.INTERRUPTED, "error": ErrorInfo(type=SUSPENDED, message="sleeps in step 'pause'")}
RETRIED = {**FAILED, "retry_delay": timedelta(seconds=5)}


@pytest.mark.parametrize(
    ("told", "bars"),
    [
        (task(TaskState.PENDING), ["submitted", "in the queue"]),
        (task(TaskState.SCHEDULED), ["submitted", "scheduled until now"]),
        (task(TaskState.RUNNING, attempt(1, 0, 2, None)), ["submitted", "in the queue", "attempt 1: running"]),
        (
            task(TaskState.COMPLETED, attempt(1, 0, 1, 2, **RETRIED), attempt(2, 7, 8, 9), ended=9),
            [
                "submitted",
                "in the queue",
                "attempt 1: failed",
                "pause before the next attempt",
                "in the queue",
                "attempt 2: completed",
                "completed",
            ],
        ),
        (
            task(TaskState.FAILED, attempt(1, 0, 0, 2, **FAILED), attempt(2, 60, 60, 61, **FAILED), ended=61),
            ["submitted", "attempt 1: failed", "among the dead letters", "attempt 2: failed", "dead letter"],
        ),
        (
            task(TaskState.RETRYING, attempt(1, 4, 5, 6, **RETRIED)),
            [
                "submitted",
                "scheduled",
                "in the queue",
                "attempt 1: failed",
                "pause before the next attempt",
            ],
        ),
        (
            task(TaskState.COMPLETED, attempt(1, 0, 0, 1, **SLEPT), attempt(2, 8, 8, 9), ended=9),
            ["submitted", "attempt 1: suspended", "suspended", "attempt 2: completed", "completed"],
        ),
        (task(TaskState.CANCELLED, ended=5), ["submitted", "waited", "cancelled"]),
    ],
)
def test_a_life_is_told_in_its_order(told: TaskDetail, bars: list[str]) -> None:
    shown = timeline(told, at(10))
    assert shown is not None
    assert [bar.name for bar in shown.bars] == bars


def test_bars_stand_where_their_time_is() -> None:
    shown = timeline(task(TaskState.COMPLETED, attempt(1, 0, 2, 8), ended=8), at(99))
    assert shown is not None
    assert not shown.shortened
    assert [(bar.left, bar.width) for bar in shown.bars] == [(0, 0), (0, 25), (25, 75), (100, 0)]


def test_long_waiting_is_drawn_shorter_and_said_to_be() -> None:
    spans = (InnerSpan(name="GET shop/prices", after=timedelta(seconds=0.1), took=timedelta(seconds=0.5), failed=True),)
    shown = timeline(task(TaskState.COMPLETED, attempt(1, 0, 3600, 3601, spans=spans), ended=3601), at(4000))
    assert shown is not None
    assert shown.shortened
    _, wait, run, call, _ = shown.bars
    # The square roots of an hour and of a second are 60 and 1.
    assert (wait.left, wait.width) == (0, 98.361)
    assert (run.left, run.width) == (98.361, 1.639)
    assert (call.left, call.width, call.tone) == (98.525, 0.82, "bad")


@pytest.mark.parametrize("waited", [0.5, 2, 13, 86_400])
@pytest.mark.parametrize("ran", [0.0001, 1, 60])
def test_what_took_longer_is_drawn_longer(waited: float, ran: float) -> None:
    shown = timeline(task(TaskState.COMPLETED, attempt(1, 0, waited, waited + ran), ended=waited + ran), at(99_999))
    assert shown is not None
    _, wait, run, _ = shown.bars
    assert (wait.width > run.width) == (waited > ran)
    assert wait.width + run.width == pytest.approx(100, abs=0.01)
    if waited == 13 and ran == 0.0001:
        assert run.width < 0.5


@pytest.mark.parametrize("days", [1 / 1728, 9e8, -9e8])
def test_a_span_that_does_not_fit_its_attempt_is_cut(days: float) -> None:
    spans = (InnerSpan(name="odd", after=timedelta(days=days), took=timedelta(days=days)),)
    shown = timeline(task(TaskState.COMPLETED, attempt(1, 0, 0, 1, spans=spans), ended=1), at(2))
    assert shown is not None
    assert all(bar.left >= 0 and bar.left + bar.width <= 100.001 for bar in shown.bars)


def test_of_very_many_attempts_the_latest_are_drawn() -> None:
    many = [attempt(n, n, n, n + 0.5, **RETRIED) for n in range(1, 51)]
    shown = timeline(task(TaskState.RETRYING, *many), at(60))
    assert shown is not None
    assert shown.earlier == 50 - MOST_ATTEMPTS
