"""Tasks in 50 queues fall due in the same second, 100,000 of them for `make figures`; `tests.labs.bench.housekeeping`
measures them."""

from __future__ import annotations

from pathlib import Path

from redis import Redis

from tests.labs.bench.housekeeping import measure_due
from tests.support.figures import JUDGED, judge

TASKS = 100_000 if JUDGED else 20_000


def test_all_due_tasks_are_moved_and_none_early(redis_client: Redis, redis_url: str, tmp_path: Path) -> None:
    moved = measure_due(redis_url, tmp_path, TASKS)
    print(moved)
    assert len(moved.lateness) == TASKS
    assert min(moved.lateness) >= 0
    judge(f"to move {TASKS:,} due tasks", moved.took, 5)
