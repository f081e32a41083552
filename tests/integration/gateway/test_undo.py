"""What was cancelled or deleted is restored: it is as it was."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from flask.testing import FlaskClient

from firmq.gateway.app import create_app
from firmq.shared.config.settings import Settings
from firmq.shared.domain.lock import Lock
from firmq.shared.domain.task import BatchPlace, Parent, TaskState, Unique
from firmq.shared.stores.batches import Batches, BatchTerms
from firmq.shared.stores.dead_letters import DeadLetters
from firmq.shared.stores.locks import NoLocks
from firmq.worker.housekeeping.jobs.ttl import Ttl
from tests.integration.dashboard.conftest import bury
from tests.support.harness import System
from tests.support.keys import keys

S = TaskState


@pytest.fixture
def http(system: System) -> FlaskClient:
    return create_app(Settings(), system.redis).test_client()


def _held() -> Any:
    held = NoLocks().acquire(Lock(name="ttl", at_most=timedelta(seconds=30)))
    assert held
    return held


def _post(http: FlaskClient, path: str, status: int = 202, **body: Any) -> dict[str, Any]:
    answer = http.post(path, json=body) if body else http.post(path)
    assert answer.status_code == status, answer.text
    found: dict[str, Any] = answer.json or {}
    return found


def test_a_cancelled_task_waits_again_and_runs(system: System, http: FlaskClient) -> None:
    task = system.submit("echo", "[7]", unique=Unique(key="k"), expires_in=timedelta(hours=1))
    later = system.submit("noop", delay=timedelta(hours=1))
    for each in (task, later):
        system.queues.cancel(each, "a mistake")
    assert _post(http, f"/tasks/{task}/restore", 200)["status"] == "pending"
    assert _post(http, f"/tasks/{later}/restore", 200)["status"] == "scheduled"
    assert system.redis.hget(keys.UNIQUE, "echo:k") == task.encode()
    assert system.records.get(task).cancel_requested is None
    system.start_worker()
    assert system.ended(task).summary.state is S.COMPLETED
    assert "only a cancelled or deleted" in _post(http, f"/tasks/{task}/restore", 409)["detail"]
    _post(http, "/tasks/unknown/restore", 404)


def test_a_cancelled_child_waits_for_its_parent_again(system: System, http: FlaskClient) -> None:
    parent = system.submit("noop")
    child = system.submit("noop", parents=(Parent(task_id=parent),))
    system.queues.cancel(child, "a mistake")
    assert _post(http, f"/tasks/{child}/restore", 200)["status"] == "blocked"
    system.start_worker()
    assert system.ended(child).summary.state is S.COMPLETED


def test_a_task_of_a_batch_is_counted_where_it_is(system: System, http: FlaskClient) -> None:
    batches = Batches(system.scripts)
    batches.open("batch", BatchTerms())
    task = system.submit("noop", batch=BatchPlace(batch_id="batch", index=0))
    batches.close("batch")
    system.queues.cancel(task, "a mistake")
    assert batches.get("batch").ended == 1
    _post(http, f"/tasks/{task}/restore", 200)
    found = batches.get("batch")
    assert (found.ended, found.counts[S.PENDING], found.counts[S.CANCELLED]) == (0, 1, 0)
    system.queues.cancel(task, "again")
    batches.cancel("batch", "enough")
    assert "stopped" in _post(http, f"/tasks/{task}/restore", 409)["detail"]


def test_a_deleted_dead_letter_returns_with_everything(system: System, http: FlaskClient) -> None:
    [dead] = bury(system, ["no"], tags=("invoice",))
    before = system.records.get(dead)
    group = system.redis.hget(keys.FAILURE_GROUP_OF, dead)
    http.delete(f"/dlq/failed-tasks/{dead}")
    assert system.records.summaries([dead]) == []
    listed = http.get("/tasks?deleted=true&type=" + before.summary.type).json
    assert listed
    assert [each["task_id"] for each in listed["items"]] == [dead]
    assert _post(http, f"/tasks/{dead}/restore", 200)["status"] == "failed"
    assert system.records.get(dead) == before
    assert system.redis.hget(keys.FAILURE_GROUP_OF, dead) == group
    assert [each["task_id"] for each in http.get("/tasks?tag=invoice").json["items"]] == [dead]  # type: ignore[index]
    assert http.get("/tasks?deleted=true").json["items"] == []  # type: ignore[index]
    assert system.redis.ttl(keys.rq_job(dead)) == -1


def test_deleted_tasks_are_removed_after_a_time(system: System, http: FlaskClient) -> None:
    [dead] = bury(system, ["no"])
    DeadLetters(system.scripts, system.records, kept=timedelta(milliseconds=20)).purge(dead)
    assert 0 < system.redis.pttl(keys.deleted(dead)) <= 20 or not system.redis.exists(keys.deleted(dead))
    system.redis.zadd(keys.DELETED, {dead: 1})
    Ttl(system.scripts, {}, timedelta(seconds=1)).run(_held())
    assert not system.redis.exists(keys.DELETED)
    [other] = bury(system, ["no"])
    DeadLetters(system.scripts, system.records, kept=timedelta()).purge(other)
    assert not system.redis.exists(keys.DELETED, keys.deleted(other))
    _post(http, f"/tasks/{other}/restore", 404)
