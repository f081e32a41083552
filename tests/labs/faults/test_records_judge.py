"""The judge of records knows that an executor may freeze between the start of an attempt and its handler."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest

from tests.labs.faults.case import SECOND, Case
from tests.labs.faults.faults import Happened
from tests.labs.faults.judges import records_say_what_was_done


def complaints(outcome: str, began: float, ended: float, fault: str = "frozen") -> list[str]:
    """Of an attempt that no handler ran, beside a fault from 5 to 10 s."""
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
        tasks={"t": {"attempts": [attempt]}},
        executions={},
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
