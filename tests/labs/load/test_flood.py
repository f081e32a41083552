"""A flood of submissions meets the limit of its queue, and nobody else does. With TEST_LONG=1 it is of 100,000."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.labs.load.flood import flood
from tests.labs.load.slopes import percentile

TASKS, LIMIT = (100_000, 5_000) if os.environ.get("TEST_LONG") == "1" else (6_000, 300)
MIB = 1 << 20
A_TASK = 2048
"""Bytes that a waiting task may take, twice what it does."""


def _spread(times: list[float]) -> str:
    return f"{percentile(times, 0.5) * 1000:.0f}, {percentile(times, 0.99) * 1000:.0f}, {max(times) * 1000:.0f} ms"


@pytest.mark.timeout(900)
def test_a_flood_is_refused_beyond_the_limit_of_its_queue_only(tmp_path: Path) -> None:
    seen = flood(tmp_path, TASKS, LIMIT)
    answers = [time for each in seen.told for time in each.times]
    shown = (
        f"{seen.sums['accepted']:,} accepted and {seen.sums['refused']:,} refused in {seen.seconds:.1f} s, "
        f"{seen.other.accepted} of another queue; answers p50, p99, longest: {_spread(answers)}, of the other queue "
        f"{_spread(seen.other.times)}; Redis grew by {seen.redis_growth / MIB:.1f} MiB, the gateway by "
        f"{seen.gateway_growth / MIB:.1f} MiB at most"
    )
    print(shown)
    assert seen.odd == [], shown
    assert seen.sums["accepted"] == seen.waiting == LIMIT
    assert seen.sums.total() >= TASKS
    assert seen.other.accepted > 0
    assert seen.ended["completed"] == LIMIT + seen.other.accepted
    assert seen.redis_growth < LIMIT * A_TASK + 8 * MIB
    assert seen.gateway_growth < 48 * MIB
