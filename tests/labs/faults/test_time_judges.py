"""The judge of retries goes by the numbers of attempts, since a frozen process begins late what it had in hand."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

from tests.labs.faults.case import SECOND, Case
from tests.labs.faults.ledger import Execution
from tests.labs.faults.time_judges import nothing_is_retried_early


def execution(attempt: int, start: float, end: float) -> Execution:
    start_ns, last_ns = int(start * SECOND), int(end * SECOND)
    return Execution(task_id="t", attempt=attempt, pid=1, worker=1, start_ns=start_ns, last_ns=last_ns, end="fail")


def complaints(outcomes: list[tuple[str, float | None]], *executions: Execution) -> list[str]:
    attempts = [
        {"number": number, "outcome": outcome, "retry_delay_seconds": delay}
        for number, (outcome, delay) in enumerate(outcomes, 1)
    ]
    case = SimpleNamespace(
        tasks={"t": {"attempts": attempts}}, executions={"t": sorted(executions, key=lambda each: each.start_ns)}
    )
    return list(nothing_is_retried_early(cast("Case", case)))


def test_a_retry_before_its_delay_is_found() -> None:
    found = complaints([("failed", 0.5), ("failed", None)], execution(1, 0, 1), execution(2, 1.4, 1.5))
    assert found == ["task t: attempt 2 began 0.100 s early"]


def test_an_attempt_that_slept_past_its_lease_and_began_after_the_next_is_no_early_retry() -> None:
    outcomes: list[tuple[str, float | None]] = [("failed", 0.2), ("lost", None), ("failed", 0.4)]
    assert complaints(outcomes, execution(1, 0, 1), execution(3, 2, 3), execution(2, 3.1, 3.2)) == []
