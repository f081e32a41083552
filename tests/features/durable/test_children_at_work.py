"""Tasks that start others and wait for them, at real workers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from firmq.shared.domain.task import TaskState
from firmq.worker.local import LocalClient
from tests.features.durable.handlers import calls
from tests.support.harness import System, wait_until
from tests.support.keys import keys

NAMES = "tests.features.durable.handlers_children,tests.support.handlers"
MODULES = {"TASK_MODULES": NAMES}
KINDS = pytest.mark.parametrize("kind", ["family", "family-threads", "family-async"])


def started(system: System, folder: Path, kind: str = "family", **data: object) -> str:
    return system.submit(kind, json.dumps({"folder": str(folder), **data}))


def blocked(system: System, task: str) -> list[str]:
    """Waits until a task waits for its children. Returns their ids."""
    wait_until(lambda: system.records.state(task) is TaskState.BLOCKED, f"task {task} waits")
    return [each.task_id for each in system.records.get(task).parents]


@KINDS
def test_a_task_goes_on_with_the_results_of_its_children(system: System, tmp_path: Path, kind: str) -> None:
    system.start_worker(**MODULES, WORKER_EXECUTORS="1")
    task = started(system, tmp_path, kind, many=5)
    assert system.ended(task).result == [0, 10, 20, 30, 40, 2]
    assert [calls(tmp_path, f"child-{each}") for each in range(5)] == [1] * 5


def test_it_holds_no_executor_and_survives_its_worker(system: System, tmp_path: Path) -> None:
    (tmp_path / "child-1.hold").touch()
    worker = system.start_worker(**MODULES, WORKER_EXECUTORS="2")
    task = started(system, tmp_path, many=2)
    blocked(system, task)
    assert system.records.get(task).summary.awaits == "children:pages"
    assert system.ended(system.submit("noop")).summary.state is TaskState.COMPLETED
    worker.kill()
    worker.wait()
    (tmp_path / "child-1.hold").unlink()
    system.start_worker(**MODULES)
    system.start_housekeeper()
    found = system.ended(task)
    assert found.result == [0, 10, 2]
    assert (calls(tmp_path, "before"), calls(tmp_path, "after"), calls(tmp_path, "child-0")) == (1, 1, 1)


def test_more_children_than_one_script_stores(system: System, tmp_path: Path) -> None:
    system.start_worker(**MODULES)
    task = started(system, tmp_path, many=600)
    assert system.ended(task).result == [*range(0, 6000, 10), 2]
    assert [each.name for each in system.records.get(task).steps] == [
        "before", "pages", "pages:2", "pages:3", "pages:gathered", "after",
    ]  # fmt: skip


@KINDS
def test_a_failed_child_makes_its_task_a_dead_letter_until_both_are_retried(
    system: System, tmp_path: Path, kind: str
) -> None:
    system.start_worker(**MODULES)
    task = started(system, tmp_path, kind, many=3, failing=[1])
    found = system.ended(task)
    assert found.summary.state is TaskState.FAILED
    assert "ValueError: child 1 fails" in str(found.attempts[-1].error)
    failed = found.parents[1].task_id
    (tmp_path / "mended").touch()
    system.dead_letters.requeue(failed)
    system.ended(failed)
    system.dead_letters.requeue(task)
    assert system.ended(task).result[:3] == [0, 10, 20]
    assert [calls(tmp_path, f"child-{each}") for each in range(3)] == [1, 2, 1]


def test_a_failure_can_be_returned(system: System, tmp_path: Path) -> None:
    system.start_worker(**MODULES)
    task = started(system, tmp_path, many=3, failing=[0, 2], catches=True)
    failures = [f"failed: ValueError: child {each} fails" for each in (0, 2)]
    assert system.ended(task).result == [failures[0], 10, failures[1], 2]


def test_one_group_is_waited_for_while_another_runs(system: System, tmp_path: Path) -> None:
    (tmp_path / "child-1.hold").touch()
    system.start_worker(**MODULES, WORKER_EXECUTORS="3")
    task = started(system, tmp_path, "two-groups")
    wait_until(lambda: calls(tmp_path, "between") == 1, "the quick group has ended")
    blocked(system, task)
    (tmp_path / "child-1.hold").unlink()
    assert system.ended(task).result == [[20, 30], [10]]
    assert calls(tmp_path, "between") == 1


def test_an_attempt_that_fails_behind_the_start_starts_no_others(system: System, tmp_path: Path) -> None:
    system.start_worker(**MODULES, INITIAL_RETRY_DELAY="0.1")
    system.start_housekeeper()
    task = started(system, tmp_path, "starts-and-fails")
    assert system.ended(task).result == [10, 20]
    assert (calls(tmp_path, "child-1"), calls(tmp_path, "child-2")) == (1, 1)


def test_a_cancel_reaches_the_children(system: System, tmp_path: Path) -> None:
    (tmp_path / "child-0.hold").touch()
    system.start_worker(**MODULES, WORKER_EXECUTORS="1")
    task = started(system, tmp_path, many=150)
    children = blocked(system, task)
    wait_until(lambda: calls(tmp_path, "child-0") == 1, "a child runs")
    system.queues.cancel(task, "no longer wanted")
    for child in children:
        found = system.ended(child)
        assert found.summary.state is TaskState.CANCELLED
        assert found.cancel_requested == f"task {task}, which started it, was cancelled"
    assert calls(tmp_path, "child-1") == 0
    assert system.redis.zcard(keys.DEFERRED_WORK) == 0


def test_a_cancelled_task_is_restored_and_finds_the_end_of_its_children(system: System, tmp_path: Path) -> None:
    (tmp_path / "child-0.hold").touch()
    system.start_worker(**MODULES, WORKER_EXECUTORS="1")
    task = started(system, tmp_path, many=2, catches=True)
    children = blocked(system, task)
    wait_until(lambda: calls(tmp_path, "child-0") == 1, "a child runs")
    system.queues.cancel(task, "a mistake")
    system.ended(children[0])
    system.queues.restore(task)
    assert [each.partition(":")[0] for each in system.ended(task).result[:2]] == ["cancelled", "cancelled"]


def test_results_are_kept_until_the_task_has_ended(system: System, tmp_path: Path) -> None:
    (tmp_path / "child-1.hold").touch()
    system.start_worker(**MODULES, WORKER_EXECUTORS="2")
    system.start_housekeeper(RETENTION_COMPLETED="0.2", HOUSEKEEPER_TTL_INTERVAL="0.1")
    task = started(system, tmp_path, many=2)
    first, _ = blocked(system, task)
    gone = system.submit("noop")
    wait_until(lambda: not system.redis.exists(keys.rq_job(gone)), "other tasks are removed")
    assert system.redis.exists(keys.rq_job(first))
    (tmp_path / "child-1.hold").unlink()
    wait_until(lambda: not system.redis.exists(keys.rq_job(first)), "it is removed after the end of its task")
    assert calls(tmp_path, "after") == 1


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ("many", "a task can have 1000 children and parents"),
        ("unique", "a child cannot have unique_key"),
        ("invalid", "number"),
    ],
)
def test_what_cannot_be_started_is_refused(system: System, how: str, words: str) -> None:
    system.start_worker(**MODULES)
    found = system.ended(system.submit("misused-children", json.dumps({"how": how})))
    assert found.summary.state is TaskState.FAILED
    assert words in str(found.attempts[-1].error)


def test_no_children_have_no_results(system: System) -> None:
    system.start_worker(**MODULES)
    assert system.ended(system.submit("misused-children", '{"how": "none"}')).result == []


def test_children_run_in_local_mode(tmp_path: Path) -> None:
    client = LocalClient(NAMES.split(","))
    done = client.submit("family", {"folder": str(tmp_path), "many": 2, "failing": [1], "catches": True})
    assert client.result(done.task_id) == [0, "failed: ValueError: child 1 fails", 2]
