"""The product under real work: a thousand texts, some of which cannot be read at first."""

from __future__ import annotations

import hashlib
from functools import partial
from pathlib import Path
from typing import Any

import httpx

from tests.acceptance.running import product
from tests.support.harness import ROOT, wait_until


def submit(api: httpx.Client, task_type: str, data: Any) -> str:
    answer = api.post("/tasks", json={"type": task_type, "data": data})
    assert answer.status_code == 202, answer.text
    return str(answer.json()["task_id"])


def listed(api: httpx.Client, path: str, **filters: str) -> list[dict[str, Any]]:
    """Every item of a paged list."""
    items: list[dict[str, Any]] = []
    cursor = None
    while True:
        page = api.get(path, params={**filters, "limit": 200, **({"cursor": cursor} if cursor else {})}).json()
        items += page["items"]
        cursor = page["next_cursor"]
        if cursor is None:
            return items


def test_of_a_thousand_real_tasks_950_complete_and_50_wait_among_the_dead_letters(tmp_path: Path) -> None:
    texts = sorted(path for path in ROOT.glob("*/*.py") if path.stat().st_size)
    missing = tmp_path / "not-there-yet.txt"
    with product(
        tmp_path, INITIAL_RETRY_DELAY="0.1", TASK_MODULES="firmq.worker.handlers.examples,tests.support.handlers"
    ) as running:
        api = running.api
        good = [submit(api, "process", texts[n % len(texts)].read_text()) for n in range(950)]
        bad = [submit(api, "digest", {"file": str(missing)}) for _ in range(50)]
        dead = wait_until(partial(_all_dead, api, len(bad)), "all fifty are dead letters", 60)
        completed = listed(api, "/tasks", status="completed")
        assert sorted(task["task_id"] for task in completed) == sorted(good)
        assert sorted(task["task_id"] for task in dead) == sorted(bad)
        for task_id in bad:
            attempts = api.get(f"/tasks/{task_id}").json()["attempts"]
            assert [attempt["number"] for attempt in attempts] == [1, 2, 3, 4]
            assert all("No such file or directory" in attempt["error"]["message"] for attempt in attempts)

        missing.write_text("now it is there")
        assert api.post(f"/dlq/failed-tasks/{bad[0]}/retry").is_success
        result = wait_until(lambda: _result(api, bad[0]), "the retried one has ended")
        assert result["result"] == hashlib.sha256(missing.read_bytes()).hexdigest()
        assert len(listed(api, "/dlq/failed-tasks")) == 49
        assert running.stop() == 0


def _all_dead(api: httpx.Client, count: int) -> list[dict[str, Any]] | None:
    """The dead letters once there are so many; the good tasks have ended long before, as they need no retries."""
    dead = listed(api, "/dlq/failed-tasks")
    return dead if len(dead) == count else None


def _result(api: httpx.Client, task_id: str) -> dict[str, Any] | None:
    answer = api.get(f"/tasks/{task_id}/result", params={"wait": 5})
    return answer.json() if answer.status_code == 200 else None
