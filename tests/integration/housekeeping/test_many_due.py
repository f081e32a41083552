"""100,000 tasks in 50 queues fall due in the same second; the figures are those of `tests.labs.bench.housekeeping`."""

from __future__ import annotations

from pathlib import Path

import pytest
from redis import Redis

from tests.labs.bench.housekeeping import measure_due
from tests.support.figures import judge


@pytest.mark.alone
def test_a_hundred_thousand_due_tasks_are_moved_and_none_early(
    redis_client: Redis, redis_url: str, tmp_path: Path
) -> None:
    moved = measure_due(redis_url, tmp_path, 100_000)
    print(moved)
    assert len(moved.lateness) == 100_000
    assert min(moved.lateness) >= 0
    judge("to move 100,000 due tasks", moved.took, 5)
