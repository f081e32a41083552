"""Tasks with steps at real workers that are killed, drained and cut off between them."""

from __future__ import annotations

import json
import os
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from firmq.shared.domain.task import Outcome, TaskDetail, TaskState
from firmq.shared.local.embedded_redis import EmbeddedRedis
from tests.features.durable.handlers import calls, rows_of
from tests.integration.worker.test_type_versions import details
from tests.support.harness import System, wait_until

MODULES = {"TASK_MODULES": "tests.features.durable.handlers"}
KINDS = pytest.mark.parametrize("kind", ["walk", "walk-async", "walk-threads"])
NAMES = ["first", "second", "third"]


class Walk:
    """A task of three steps that is held behind the second one."""

    def __init__(self, system: System, folder: Path, kind: str) -> None:
        self.system = system
        self.folder = folder
        self.hold = folder / "second.hold"
        self.hold.touch()
        self.id = system.submit(kind, json.dumps({"folder": str(folder), "names": NAMES}))
        wait_until((folder / "second.done").exists, "the second step is done")

    def ended(self) -> TaskDetail:
        """The task after it was released; every step ran once."""
        self.hold.unlink(missing_ok=True)
        task = self.system.ended(self.id)
        assert task.summary.state is TaskState.COMPLETED, self.system.logs()
        assert task.result == [{"name": name, "calls": 1} for name in NAMES]
        assert [calls(self.folder, name) for name in NAMES] == [1, 1, 1]
        assert [each.name for each in task.steps] == NAMES
        return task


def start(system: System, **environment: str) -> Any:
    return system.start_worker(**MODULES, **environment)


@KINDS
def test_a_task_whose_worker_is_killed_continues_behind_its_last_step(
    system: System, tmp_path: Path, kind: str
) -> None:
    worker = start(system)
    system.start_housekeeper()
    walk = Walk(system, tmp_path, kind)
    worker.kill()
    worker.wait()
    start(system)
    task = walk.ended()
    assert [(each.name, each.attempt) for each in task.steps] == [("first", 1), ("second", 1), ("third", 2)]
    assert task.attempts[0].outcome is Outcome.LOST


@KINDS
def test_a_task_whose_executor_is_killed_continues_behind_its_last_step(
    system: System, tmp_path: Path, kind: str
) -> None:
    worker = start(system)
    system.start_housekeeper()
    walk = Walk(system, tmp_path, kind)
    os.kill(system.executors(worker, "serial" if kind == "walk" else "concurrent")[0], signal.SIGKILL)
    task = walk.ended()
    assert [each.attempt for each in task.steps] == [1, 1, 2]


@KINDS
def test_a_drained_worker_hands_a_task_with_its_steps_to_the_next(system: System, tmp_path: Path, kind: str) -> None:
    worker = start(system, DRAIN_GRACE="0.2")
    walk = Walk(system, tmp_path, kind)
    worker.terminate()
    worker.wait(30)
    start(system)
    task = walk.ended()
    assert [each.attempt for each in task.steps] == [1, 1, 2]
    assert (task.summary.failures, task.summary.crashes) == (0, 0)
    assert task.attempts[0].outcome is Outcome.INTERRUPTED


@KINDS
def test_a_step_that_ends_while_redis_restarts_is_stored(
    system: System, redis_server: EmbeddedRedis, tmp_path: Path, kind: str
) -> None:
    start(system, LEASE_TIME="20")
    walk = Walk(system, tmp_path, kind)
    redis_server.stop()
    walk.hold.unlink()
    wait_until(lambda: calls(tmp_path, "third"), "the function of the third step was called")
    redis_server.start()
    task = walk.ended()
    assert [each.attempt for each in task.steps] == [1, 1, 1]
    assert len(task.attempts) == 1


@KINDS
def test_an_attempt_that_lost_its_lease_stores_no_step(system: System, tmp_path: Path, kind: str) -> None:
    """The worker is suspended, the executor continues: what it stores then would be a second truth."""
    worker = start(system, LEASE_TIME="30")  # the next extension, which stops the attempt, is seconds away
    walk = Walk(system, tmp_path, kind)
    system.redis.hset(system.scripts.keys.rq_job(walk.id), "token", "of another attempt")
    walk.hold.unlink()
    wait_until(lambda: calls(tmp_path, "third"), "the function of the third step was called")
    wait_until(lambda: "lease lost" in system.logs(), "the worker knows that it has lost the lease")
    assert [each.name for each in system.records.get(walk.id).steps] == NAMES[:2]
    assert worker.poll() is None


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ("together", "at most 1048576 are allowed"),
        ("many", "has 1000 stored steps, the most that are allowed: split it, or raise MAX_STEPS"),
    ],
)
def test_more_steps_than_allowed_make_a_dead_letter(system: System, how: str, words: str) -> None:
    start(system)
    task = system.ended(system.submit("misused", json.dumps({"how": how})))
    assert task.summary.error is not None
    assert task.summary.error.type == "TooManySteps"
    assert words in task.attempts[-1].error.message  # type: ignore[union-attr]
    assert len(task.attempts) == 1


@pytest.mark.parametrize("kind", ["values", "values-async", "at-once"])
def test_the_executors_of_tasks_with_steps_stay(system: System, tmp_path: Path, kind: str) -> None:
    worker = start(system)
    system.start_housekeeper()
    data = {"folder": str(tmp_path), "names": ["a", "b"]} if kind == "at-once" else None
    assert system.ended(system.submit(kind, json.dumps(data or {}))).summary.state is TaskState.COMPLETED
    before = [*system.executors(worker, "serial"), *system.executors(worker, "concurrent")]
    assert system.ended(system.submit(kind, json.dumps(data or {}))).summary.state is TaskState.COMPLETED
    assert [*system.executors(worker, "serial"), *system.executors(worker, "concurrent")] == before
    assert "left behind" not in system.logs()


MANY = 1500
ROWS = pytest.mark.parametrize("kind", ["rows", "rows-async", "rows-threads"])


def _loop(system: System, folder: Path, kind: str) -> str:
    """A loop of half a minute in its first attempt, that has begun."""
    found = system.submit(kind, json.dumps({"folder": str(folder), "many": MANY, "every": 10, "pause": 0.02}))
    wait_until(lambda: len(rows_of(folder, 1)) >= 35, "some rows are done")
    return found


@ROWS
def test_a_loop_leaves_a_draining_worker_at_its_next_checkpoint(system: System, tmp_path: Path, kind: str) -> None:
    worker = start(system, DRAIN_GRACE="60")
    task_id = _loop(system, tmp_path, kind)
    worker.terminate()
    assert worker.wait(20) == 0
    assert system.records.state(task_id) is TaskState.PENDING
    start(system)
    task = system.ended(task_id)
    assert (task.result, task.summary.failures, task.summary.crashes) == (MANY, 0, 0)
    assert [each.outcome for each in task.attempts] == [Outcome.INTERRUPTED, Outcome.COMPLETED]
    assert rows_of(tmp_path, 1) + rows_of(tmp_path, 2) == list(range(MANY))
    assert 0 < len(rows_of(tmp_path, 1)) < MANY


@ROWS
def test_a_loop_whose_worker_is_killed_repeats_less_than_a_checkpoint(
    system: System, tmp_path: Path, kind: str
) -> None:
    worker = start(system)
    system.start_housekeeper()
    task_id = _loop(system, tmp_path, kind)
    worker.kill()
    worker.wait()
    start(system)
    task = system.ended(task_id)
    assert task.result == MANY
    first, second = rows_of(tmp_path, 1), rows_of(tmp_path, 2)
    assert sorted({*first, *second}) == list(range(MANY))
    assert len(first) + len(second) - MANY <= 10


def test_a_retry_of_the_dead_letter_repeats_a_failed_step_that_was_undone(system: System, tmp_path: Path) -> None:
    """It does not come to the step that undid it, which says nothing of a changed handler."""
    system.start_worker(TASK_MODULES="tests.features.durable.handlers")
    task = system.submit("compensating", json.dumps({"folder": str(tmp_path)}))
    found = system.ended(task)
    assert (found.summary.state, calls(tmp_path, "release")) == (TaskState.FAILED, 1)
    (tmp_path / "paid").touch()
    system.dead_letters.requeue(task)
    wait_until(lambda: system.records.state(task) is TaskState.COMPLETED, "it continues", 20)
    assert [calls(tmp_path, name) for name in ("reserve", "release", "ship")] == [1, 1, 1]


@pytest.mark.parametrize("kind", ["pinned", "pinned-async"])
def test_a_task_with_steps_stays_on_its_version(system: System, tmp_path: Path, kind: str) -> None:
    for version in ("1", "2"):
        system.start_worker(
            TASK_MODULES="tests.features.durable.handlers",
            APP_VERSION=version,
            WORKER_EXECUTORS="1",
            EXECUTOR_SLOTS="2",
        )
    system.start_housekeeper()
    ids = system.submit_many([(kind, json.dumps({"folder": str(tmp_path)}))] * 20)
    found = [{attempt.app_version for attempt in each.attempts} for each in details(system, ids)]
    assert Counter(map(len, found)) == {1: 20}
    assert set.union(*found) == {"1", "2"}
