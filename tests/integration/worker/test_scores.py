"""Tasks leave a queue in the order of their scores, whatever dies, and a worker takes those between its bounds."""

from __future__ import annotations

import json
from collections import Counter
from functools import partial
from pathlib import Path
from random import Random

from firmq.shared.domain.task import NewTask, TaskState, new_task_id
from firmq.shared.domain.task_fields import HIGHEST_SCORE
from tests.support.harness import System, wait_until
from tests.support.keys import keys

TASKS = 10_000


def submit(system: System, scores: dict[str, float | None], file: Path, seconds: float = 0) -> None:
    """Tasks that write their ids into a file when they start, with these scores by id."""
    data = json.dumps({"file": str(file), "seconds": seconds})
    new = [NewTask(id=each, type="note", data=data, queue="normal", score=score) for each, score in scores.items()]
    system.queues.submit(new)


def scored(count: int, random: Random) -> dict[str, float | None]:
    """Scores of all sizes; no two are equal."""
    scores = {float(random.choice([random.random(), random.randint(0, HIGHEST_SCORE)])) for _ in range(count)}
    return {new_task_id(): score for score in random.sample(sorted(scores), len(scores))}


def started(file: Path) -> list[str]:
    return [line.split()[0] for line in file.read_text().splitlines()] if file.exists() else []


def is_done(file: Path, count: int) -> bool:
    return len(started(file)) > count


def test_ten_thousand_tasks_with_random_scores_leave_in_order(system: System, tmp_path: Path) -> None:
    scores = scored(TASKS, Random(1))
    submit(system, scores, tmp_path / "order")
    system.start_worker(WORKER_EXECUTORS="1")
    system.all_ended()
    assert started(tmp_path / "order") == sorted(scores, key=lambda each: scores[each] or 0)


def test_four_workers_of_which_some_are_killed_lose_none(system: System, tmp_path: Path) -> None:
    scores = scored(TASKS // 2, Random(2)) | {new_task_id(): None for _ in range(TASKS // 2)}
    submit(system, scores, tmp_path / "order")
    workers = [system.start_worker(WORKER_EXECUTORS="1") for _ in range(4)]
    system.start_housekeeper()
    for at, worker in enumerate(workers[:3]):
        wait_until(partial(is_done, tmp_path / "order", at * TASKS // 5), "part of it is done")
        worker.kill()
        worker.wait()
        if at:
            system.start_worker(WORKER_EXECUTORS="1")
    counts = system.all_ended()
    assert counts[TaskState.COMPLETED] == TASKS
    assert set(started(tmp_path / "order")) == scores.keys()
    for left in ("throttled:*", "pending:*", "wait-queue*", "fair"):
        assert system.redis.keys(f"{keys.prefix}firmq:{left}") == [], left


def test_a_worker_takes_the_scores_between_its_bounds(system: System, tmp_path: Path) -> None:
    scores: dict[str, float | None] = {new_task_id(): score for score in (None, 0, 9.99, 10, 15, 20, 20.01, 1e15)}
    submit(system, scores, tmp_path / "order")
    system.start_worker(WORKER_MIN_SCORE="10", WORKER_MAX_SCORE="20")
    wait_until(lambda: system.records.counts()[TaskState.COMPLETED] == 3, "three have ended")
    more = {new_task_id(): float(score) for score in (21, 11, 9)}
    submit(system, dict(more), tmp_path / "order")  # its worker is idle
    wait_until(lambda: system.records.counts()[TaskState.COMPLETED] == 4, "one more has ended")
    assert [(scores | more)[each] for each in started(tmp_path / "order")] == [10, 15, 20, 11]
    system.start_worker()
    counts: Counter[TaskState] = Counter(system.all_ended())
    assert counts[TaskState.COMPLETED] == 11


def test_wake_ups_are_left_to_the_workers_that_take_any_task(system: System, tmp_path: Path) -> None:
    system.start_worker(WORKER_MAX_SCORE="1")
    wakeups = keys.wakeup("normal")
    submit(system, {new_task_id(): 5.0}, tmp_path / "order")
    wait_until(lambda: system.redis.llen(wakeups), "a wake-up waits")
    submit(system, {new_task_id(): 0.5}, tmp_path / "order")
    wait_until(lambda: started(tmp_path / "order"), "its own task ran")
    assert system.redis.llen(wakeups) >= 1
    assert system.redis.zcard(keys.PARKED_CLAIMS) == 0
