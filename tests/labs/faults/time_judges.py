"""Judges of time: nothing comes before its time, and every time on record is the true one, whoever's clock is wrong.

That nothing comes too late is judged by patience: a clock that somebody trusted would make it wait for ten minutes.
"""

from __future__ import annotations

from collections.abc import Iterator

from tests.labs.faults.case import SECOND, Case, Task
from tests.labs.faults.ledger import Asked, Execution

WRONG = 300 * SECOND
"""A record may be written long after the fact, but not that long; clocks that are moved are moved by twice that."""


def nothing_starts_early(case: Case) -> Iterator[str]:
    for task_id, asked in case.asked_of.items():
        for first in case.executions.get(task_id, ())[:1]:
            if (early := _due(case, asked) - first.start_ns) > 0:
                yield f"task {task_id} began {early / SECOND:.3f} s early"


def _due(case: Case, asked: Asked) -> float:
    if "run_at" in asked.about:
        return case.monotonic(asked.about["run_at"])
    return asked.sent_ns + float(asked.about.get("delay", 0)) * SECOND


def nothing_is_retried_early(case: Case) -> Iterator[str]:
    """Of attempts that failed on record, by their numbers: one that slept past its lease may begin after the next."""
    for task_id, task in case.tasks.items():
        ran = {each.attempt: each for each in case.executions.get(task_id, ())}
        for attempt in task["attempts"]:
            one, other = ran.get(attempt["number"]), ran.get(attempt["number"] + 1)
            if attempt["outcome"] != "failed" or one is None or other is None:
                continue
            # What was sent back from the dead letters did not have to wait.
            early = one.last_ns + (attempt["retry_delay_seconds"] or 0.0) * SECOND - other.start_ns
            if early > 0:
                yield f"task {task_id}: attempt {other.attempt} began {early / SECOND:.3f} s early"


def nothing_expires_early(case: Case) -> Iterator[str]:
    for task_id, asked in case.asked_of.items():
        task = case.tasks[task_id]
        if task["status"] == "expired" and "expires_in" in asked.about:
            early = asked.sent_ns + float(asked.about["expires_in"]) * SECOND - case.monotonic(task["ended_at"])
            if early > 0:
                yield f"task {task_id} expired {early / SECOND:.3f} s early"


def records_tell_the_time(case: Case) -> Iterator[str]:
    for task_id, task in case.tasks.items():
        ran = {each.attempt: each for each in case.executions.get(task_id, ())}
        told = {"created_at": (task["created_at"], case.asked_of[task_id].sent_ns)} if task_id in case.asked_of else {}
        for attempt in task["attempts"]:
            if attempt["number"] in ran:
                told |= _times(attempt, ran[attempt["number"]])
        for name, (moment, at) in told.items():
            if moment and abs(wrong := case.monotonic(moment) - at) > WRONG:
                yield f"task {task_id}: {name} is wrong by {wrong / SECOND:.0f} s"


def _times(attempt: Task, ran: Execution) -> dict[str, tuple[str | None, int]]:
    """What is told of an attempt, and what was true."""
    which = f"of attempt {ran.attempt}"
    return {
        f"started_at {which}": (attempt["started_at"], ran.start_ns),
        f"ended_at {which}": (attempt["ended_at"], ran.last_ns),
    }
