"""The judge of outages knows that a death may be on record a moment before it happened."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest

from tests.labs.faults.case import SECOND, Case
from tests.labs.faults.faults import Happened
from tests.labs.faults.judges import an_outage_is_nobodys_crash
from tests.labs.faults.ledger import Execution

EXECUTOR, WORKER = 11, 10


def complaints(ended: float) -> list[str]:
    """Of an attempt that began at 5 s, whose executor was killed at 6 s, and whose crash is on record at `ended`."""
    killed = Happened("executor killed", "worker-1", 6 * SECOND, 6 * SECOND, [EXECUTOR])
    case = SimpleNamespace(
        run=SimpleNamespace(happened=[killed]),
        tasks={"t": {"attempts": [{"number": 1, "outcome": "crashed", "ended_at": ended}]}},
        executions={"t": [Execution("t", 1, EXECUTOR, WORKER, 5 * SECOND, 6 * SECOND, "")]},
        monotonic=lambda seconds: int(seconds * SECOND),
    )
    return list(an_outage_is_nobodys_crash(cast("Case", case)))


@pytest.mark.parametrize("ended", [5.98, 6.0, 6.3])
def test_a_death_may_be_on_record_a_moment_early(ended: float) -> None:
    assert complaints(ended) == []


def test_a_crash_on_record_long_before_the_death_has_another_cause() -> None:
    assert len(complaints(5.5)) == 1
