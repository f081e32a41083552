"""`PATCH /tasks/{id}`: what may be changed of a task that waits, and what is said of others."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from flask.testing import FlaskClient

from firmq.gateway.app import create_app
from firmq.shared.config.settings import Settings
from firmq.shared.domain.task import TaskState
from firmq.shared.stores.audit import Audit
from tests.support.harness import System, wait_until

S = TaskState


@pytest.fixture
def http(system: System) -> FlaskClient:
    return create_app(Settings(), system.redis).test_client()


def _patch(http: FlaskClient, task_id: str, status: int = 200, **body: Any) -> dict[str, Any]:
    answer = http.patch(f"/tasks/{task_id}", json=body)
    assert answer.status_code == status, answer.text
    found: dict[str, Any] = answer.json or {}
    return found


def test_a_pending_task_changes_its_queue_and_runs_there(system: System, http: FlaskClient) -> None:
    task = system.submit("noop", queue="low")
    assert _patch(http, task, queue="high")["queue"] == "high"
    system.start_worker(WORKER_QUEUES="high")
    assert system.ended(task).summary.state is S.COMPLETED
    assert Audit(system.redis).page(1)[0][0].detail == "queue"


def test_times_change_in_every_direction(system: System, http: FlaskClient) -> None:
    task = system.submit("noop")
    later = _patch(http, task, delay=3600)
    assert later["status"] == "scheduled"
    sooner = _patch(http, task, delay=60)
    assert sooner["next_attempt_at"] < later["next_attempt_at"]
    assert _patch(http, task, run_at="2001-01-01T00:00:00Z")["status"] == "pending"
    system.start_worker()
    assert system.ended(task).summary.state is S.COMPLETED


def test_data_is_validated_and_used(system: System, http: FlaskClient) -> None:
    task = system.submit("echo", '{"data": 1}', delay=timedelta(hours=1))
    system.start_worker()
    wait_until(lambda: any(each["name"] == "slowly" for each in http.get("/types").json["items"]), "types are known")  # type: ignore[index]
    wrong = system.submit("slowly", '{"seconds": 1}', delay=timedelta(hours=1))
    assert "seconds" in _patch(http, wrong, 422, data={"seconds": "never"})["detail"]
    _patch(http, task, data=[1, 2], delay=0)
    assert system.ended(task).result == [1, 2]


@pytest.mark.parametrize(
    ("body", "advice"),
    [
        ({}, "must change something"),
        ({"queue": None, "delay": None}, "must change something"),
        ({"delay": 1, "run_at": "2030-01-01T00:00:00Z"}, "exclude"),
        ({"type": "x"}, "type"),
    ],
)
def test_a_wrong_body_is_refused(system: System, http: FlaskClient, body: dict[str, Any], advice: str) -> None:
    assert advice in _patch(http, system.submit("noop"), 422, **body)["detail"]


def test_the_audit_record_names_what_is_changed(system: System, http: FlaskClient) -> None:
    task = system.submit("noop")
    _patch(http, task, 422, queue=None)
    _patch(http, task, queue=None, delay=60)
    assert [each.detail for each in Audit(system.redis).page(10)[0]] == ["delay"]


def test_a_task_is_not_moved_into_a_full_queue(system: System) -> None:
    http = create_app(Settings(max_queue_length=1), system.redis).test_client()
    system.submit("noop", queue="high")
    task, scheduled = system.submit("noop"), system.submit("noop", delay=timedelta(hours=1))
    before = system.records.get(task)
    for each in (task, scheduled):
        refused = http.patch(f"/tasks/{each}", json={"queue": "high", "delay": 0})
        assert (refused.status_code, refused.json["type"]) == (429, "/problems/queue-full")  # type: ignore[index]
        assert "Retry-After" in refused.headers
    assert system.records.get(task) == before
    assert Audit(system.redis).page(10)[0] == []
    _patch(http, scheduled, queue="high")  # it takes no place before it is due
    _patch(http, task, queue="high", delay=60)
    _patch(http, system.submit("noop", queue="high"), queue="high")


def test_a_task_that_does_not_wait_is_a_conflict_that_says_what_to_do(system: System, http: FlaskClient) -> None:
    ended = system.submit("noop")
    system.queues.cancel(ended, "no")
    found = _patch(http, ended, 409, queue="high")
    assert (found["task_status"], "restore it first" in found["detail"]) == ("cancelled", True)
    running = system.submit("slowly", '{"seconds": 300}')
    system.start_worker()
    wait_until(lambda: system.records.state(running) is S.RUNNING, "it runs")
    assert "cancel it, or wait" in _patch(http, running, 409, queue="high")["detail"]
    _patch(http, "unknown", 404, queue="high")
