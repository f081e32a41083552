"""What Redis may have taken back is left out of the verdict, and nothing else."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.labs.faults.case import AFTER_THAW, SECOND, Case
from tests.labs.faults.faults import Happened
from tests.labs.faults.ledger import Execution
from tests.labs.faults.rollback import HELD, untouched

BEGIN, END = 100 * SECOND, 103 * SECOND


@pytest.mark.parametrize(
    ("start", "end", "stays"),
    [
        (BEGIN - 9 * SECOND, BEGIN - AFTER_THAW - 1, True),
        (BEGIN - 9 * SECOND, BEGIN, False),
        (END + SECOND // 20, END + SECOND // 10, False),  # claimed before, begun when Redis had forgotten the claim
        (END + HELD + 1, END + HELD + SECOND, True),
    ],
)
def test_tasks_that_ran_while_steps_could_be_taken_back_are_left_out(start: int, end: int, stays: bool) -> None:
    happened = [Happened("redis killed in a slow fsync", "redis", BEGIN, END, rolls_back=True)]
    run = SimpleNamespace(happened=happened, ledger=SimpleNamespace(deeds=[], executions=list))
    case = Case(cast("Any", run), cast("Any", {"one": {"data": {"kind": "slow"}}}), set(), {}, [], cast("Any", None))
    case.executions = {"one": [Execution("one", 1, 11, 10, start, end)]}
    assert ("one" in untouched(case).tasks) == stays
