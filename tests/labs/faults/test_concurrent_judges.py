"""Judges know that an executor may have run many: who ended it, who was beside, and what held up whom."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.labs.faults.case import SECOND, Case
from tests.labs.faults.faults import Happened
from tests.labs.faults.judges import (
    no_crash_is_charged_to_one_of_many,
    nobody_is_interrupted_without_a_cause,
    time_limits_hold,
    who_is_cancelled_stops,
)
from tests.labs.faults.ledger import Deed, Execution

EXECUTOR, WORKER = 11, 10
DIED = "its executor, which ran 2 tasks, died: the process ended with status 9"


def execution(task_id: str, start: float, end: float, how: str = "") -> Execution:
    """Of a task whose id begins with its kind."""
    start_ns, end_ns = int(start * SECOND), int(end * SECOND)
    return Execution(task_id, 1, EXECUTOR, WORKER, start_ns, end_ns, how, concurrent=True)


def case_of(
    *executions: Execution,
    outcome: str = "interrupted",
    why: str = DIED,
    faults: tuple[Happened, ...] = (),
    **about: Any,
) -> Case:
    """Where every attempt ended in this way, at the time of its last sign of life."""
    tasks = {
        each.task_id: {
            "status": "completed",
            "data": {"kind": each.task_id.split("-")[0]},
            "attempts": [
                {"number": 1, "outcome": outcome, "error": {"message": why}, "ended_at": str(each.last_ns / SECOND)}
            ],
        }
        for each in executions
    }
    ledger = SimpleNamespace(executions=lambda: sorted(executions, key=lambda each: each.start_ns), **about)
    run = SimpleNamespace(happened=list(faults), stalls=[], ledger=ledger)
    case = Case(cast("Any", run), cast("Any", tasks), set(), {}, [], cast("Any", None))
    case.executions = {each.task_id: [each] for each in executions}
    case.monotonic = lambda moment: int(float(moment) * SECOND)  # type: ignore[method-assign]
    return case


# --- crashes ---


def test_a_crash_that_is_charged_to_one_of_many_is_found_and_that_of_one_alone_is_as_promised() -> None:
    crash, beside = execution("crash-1", 0, 2, "crash"), execution("slow-1", 0, 2)
    before = execution("slow-2", 0, 1, "complete")
    assert len(list(no_crash_is_charged_to_one_of_many(case_of(crash, beside, outcome="crashed")))) == 2
    assert list(no_crash_is_charged_to_one_of_many(case_of(crash, beside))) == []
    assert list(no_crash_is_charged_to_one_of_many(case_of(crash, before, outcome="crashed"))) == []


def test_the_death_of_an_executor_has_a_cause() -> None:
    beside = execution("slow-1", 0, 2)
    kill = Happened("concurrent executor killed", "worker-1", 2 * SECOND, 2 * SECOND, [EXECUTOR])
    assert len(list(nobody_is_interrupted_without_a_cause(case_of(beside)))) == 1
    assert list(nobody_is_interrupted_without_a_cause(case_of(beside, faults=(kill,)))) == []
    assert list(nobody_is_interrupted_without_a_cause(case_of(beside, execution("crash-1", 1, 2, "crash")))) == []


def test_who_began_in_a_process_that_was_just_crashing_was_beside_the_crash() -> None:
    crash, late = execution("crash-1", 0, 1, "crash"), execution("slow-1", 1.1, 1.1)
    assert list(nobody_is_interrupted_without_a_cause(case_of(crash, late))) == []


@pytest.mark.parametrize(
    ("why", "culprit"),
    [
        ("its executor was stopped (stuck)", "stuck-1"),
        ("it blocked the event loop of its executor, which ran other tasks too", None),
        ("its executor was stopped for another task", None),
    ],
)
def test_who_is_stopped_for_another_is_found_unless_that_one_was_there(why: str, culprit: str | None) -> None:
    one = execution("slow-1", 0, 2, "stopped")
    assert len(list(nobody_is_interrupted_without_a_cause(case_of(one, why=why)))) == 1
    if culprit:
        assert list(nobody_is_interrupted_without_a_cause(case_of(one, execution(culprit, 0, 0), why=why))) == []


# --- limits and cancels ---


def test_a_late_end_at_a_limit_is_found_unless_another_held_up_the_loop() -> None:
    late = execution("overdue-1", 0, 6, "stopped")
    assert len(list(time_limits_hold(case_of(late)))) == 1
    blocking = [execution(f"blocking-{at}", at, at + 1.3, "stopped") for at in (1, 3)]
    assert list(time_limits_hold(case_of(late, *blocking))) == []
    frozen = Happened("concurrent executor frozen", "worker-1", SECOND, 5 * SECOND, [EXECUTOR], frozen=True)
    assert list(time_limits_hold(case_of(late, faults=(frozen,)))) == []


@pytest.mark.parametrize(("until", "found"), [(10, 0), (20, 1)])
def test_who_goes_on_long_after_a_cancel_is_found(until: int, found: int) -> None:
    deed = Deed("cancel", "endless-1", SECOND, SECOND, 202)
    case = case_of(execution("endless-1", 0, until), deeds=[deed])
    assert len(list(who_is_cancelled_stops(case))) == found
