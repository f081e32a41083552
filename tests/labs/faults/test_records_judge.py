"""The judge of records knows what executors do that freeze, or that outlive their worker for a moment."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest

from tests.labs.faults.case import SECOND, Case
from tests.labs.faults.faults import Happened
from tests.labs.faults.judges import records_say_what_was_done
from tests.labs.faults.ledger import Execution


def complaints(
    outcome: str, began: float, ended: float, fault: str = "frozen", ran: Execution | None = None
) -> list[str]:
    """Of an attempt that no handler ran, if none is given, beside a fault from 5 to 10 s."""
    happened = Happened(f"executor {fault}", "worker-1", 5 * SECOND, 10 * SECOND, [11], frozen=fault == "frozen")
    attempt = {
        "number": 1,
        "outcome": outcome,
        "started_at": began,
        "ended_at": ended,
        "worker": "h-10-x",
        "error": None,
    }
    case = SimpleNamespace(
        run=SimpleNamespace(happened=[happened]),
        tasks={"t": {"type": "lab", "attempts": [attempt]}},
        executions={"t": [ran]} if ran else {},
        monotonic=lambda seconds: int(seconds * SECOND),
    )
    return list(records_say_what_was_done(cast("Case", case)))


def test_an_attempt_that_froze_before_its_handler_may_time_out() -> None:
    assert complaints("timed_out", 4.9, 7.9) == []


@pytest.mark.parametrize(
    ("outcome", "began", "ended", "fault"),
    [("timed_out", 1, 4, "frozen"), ("timed_out", 11, 14, "frozen"), ("timed_out", 4.9, 7.9, "killed")],
)
def test_other_time_limits_need_a_handler(outcome: str, began: float, ended: float, fault: str) -> None:
    assert len(complaints(outcome, began, ended, fault)) == 1


def test_a_frozen_executor_completes_nothing_without_its_handler() -> None:
    assert len(complaints("completed", 4.9, 7.9)) == 1


def execution(worker: int, end: str) -> Execution:
    """A handler that ran in an executor of this process."""
    return Execution("t", 1, 11, worker, 5 * SECOND, 6 * SECOND, end)


def test_a_handler_may_begin_when_its_worker_was_just_killed() -> None:
    assert complaints("lost", 4.9, 7.9, "killed", execution(1, "")) == []


@pytest.mark.parametrize(("outcome", "worker"), [("completed", 1), ("lost", 12)])
def test_a_handler_of_another_worker_is_noticed(outcome: str, worker: int) -> None:
    assert len(complaints(outcome, 4.9, 7.9, "killed", execution(worker, "complete"))) == 1
