"""Bulk actions over HTTP: previewed, started by filter, changed, and carried out by the housekeeping job."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest
from flask.testing import FlaskClient

from firmq.gateway.app import create_app
from firmq.shared.config.settings import Settings
from firmq.shared.domain.lock import Lock
from firmq.shared.domain.task import TaskState
from firmq.shared.features.bulk import store as bulk_store
from firmq.shared.features.bulk.keys import BulkKeys
from firmq.shared.features.bulk.store import BulkActions
from firmq.shared.stores.audit import Audit
from firmq.shared.stores.locks import NoLocks
from firmq.shared.stores.task_types import TaskType, TaskTypes
from firmq.worker.features.bulk.job import Bulk
from tests.integration.dashboard.conftest import bury
from tests.support.clock import FakeClock
from tests.support.harness import System
from tests.support.keys import keys
from tests.support.store import Store

BULK = BulkKeys.beside(keys)

S = TaskState


@pytest.fixture
def http(system: System) -> FlaskClient:
    return create_app(Settings(), system.redis).test_client()


def _carry_out(system: System) -> None:
    held = NoLocks().acquire(Lock(name="bulk", at_most=timedelta(seconds=30)))
    assert held
    job = Bulk(BulkActions(system.scripts, system.dead_letters))
    while job.run(held).more:
        pass


def _post(http: FlaskClient, path: str, status: int = 202, **body: Any) -> dict[str, Any]:
    answer = http.post(path, json=body)
    assert answer.status_code == status, answer.text
    found: dict[str, Any] = answer.json or {}
    return found


def _states(system: System, ids: list[str]) -> list[TaskState]:
    return [system.records.state(each) for each in ids]


def test_it_is_counted_and_shown_before_anything_happens(system: System, http: FlaskClient) -> None:
    for n in range(30):
        system.submit("noop", queue="low", tags=("odd",) if n % 2 else ())
    system.submit("noop", queue="high")
    found = _post(http, "/bulk-actions/preview", 200, action="cancel", filter={"queue": "low"})
    assert (found["count"], found["exact"], len(found["sample"])) == (30, True, 20)
    assert _post(http, "/bulk-actions/preview", 200, action="cancel", filter={"tag": "odd"})["count"] == 15
    assert _post(http, "/bulk-actions/preview", 200, action="retry", filter={"queue": "low"})["count"] == 0
    assert system.records.counts()[S.PENDING] == 31


@pytest.mark.parametrize("limit", [1, 2, 3, 7])
@pytest.mark.parametrize("by", [{"queue": "normal"}, {"tag": "odd"}])
def test_a_limit_takes_those_that_waited_longest(
    system: System, http: FlaskClient, by: dict[str, str], limit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bulk_store, "EXAMINED", 2)
    ids = [system.submit("noop", queue="normal", tags=("odd",)) for _ in range(5)]
    body: dict[str, Any] = {"action": "cancel", "filter": {**by, "limit": limit}}
    assert _post(http, "/bulk-actions/preview", 200, **body)["count"] == min(limit, 5)
    started = _post(http, "/bulk-actions", **body, rate=1)
    assert started["total"] == min(limit, 5)
    assert f"{limit} at most" in started["what"]
    wanted = BulkActions(system.scripts, system.dead_letters)
    for _ in range(20):
        wanted.step(wanted.unfinished()[0], 2) if wanted.unfinished() else None
    assert _states(system, ids) == [S.CANCELLED] * min(limit, 5) + [S.PENDING] * max(0, 5 - limit)
    shown = http.get(f"/bulk-actions/{started['action_id']}").json or {}
    assert (shown["done"], shown["status"]) == (min(limit, 5), "finished")


def test_a_limit_counts_the_tasks_that_match_when_they_are_taken(system: System, http: FlaskClient) -> None:
    ids = [system.submit("noop", queue="normal", delay=timedelta(hours=1)) for _ in range(4)]
    action = _post(http, "/bulk-actions", action="run_now", filter={"type": "noop", "limit": 2})
    system.records.scripts.call("cancel", ids[0], "a person")
    _carry_out(system)
    assert _states(system, ids) == [S.CANCELLED, S.PENDING, S.PENDING, S.SCHEDULED]
    assert (http.get(f"/bulk-actions/{action['action_id']}").json or {})["done"] == 2
    _post(http, "/bulk-actions", 422, action="run_now", filter={"limit": 0})


def test_tasks_of_a_filter_are_cancelled_and_others_stay(system: System, http: FlaskClient) -> None:
    wanted = [system.submit("noop", queue=queue, tags=("old",)) for queue in ("low", "normal", "high")]
    wanted.append(system.submit("noop", delay=timedelta(hours=1), tags=("old",)))
    others = [system.submit("noop"), system.submit("noop", tags=("new",))]
    started = _post(http, "/bulk-actions", action="cancel", filter={"tag": "old"}, rate=1000, reason="an old import")
    late = system.submit("noop", tags=("old",))
    _carry_out(system)
    assert _states(system, wanted) == [S.CANCELLED] * 4
    assert _states(system, [*others, late]) == [S.PENDING] * 3
    assert system.records.get(wanted[0]).cancel_requested == "an old import"
    shown = http.get(f"/bulk-actions/{started['action_id']}").json
    assert shown
    assert (shown["status"], shown["total"], shown["done"], shown["skipped"]) == ("finished", 4, 4, 0)
    assert [each["action_id"] for each in http.get("/bulk-actions").json["items"]] == [started["action_id"]]  # type: ignore[index]
    [entry] = Audit(system.redis).page(10)[0]
    assert (entry.what, entry.about) == ("started bulk action", started["action_id"])
    assert entry.detail == "cancel: 4 tasks, 1000 per second: tag=old: an old import"


def test_times_far_away_are_no_bounds(system: System, http: FlaskClient) -> None:
    system.submit_many([("noop", "null")] * 2)
    body = {"action": "cancel", "filter": {"since": "0001-01-02T00:00:00Z", "until": "9999-01-01T00:00:00Z"}}
    assert (http.post("/bulk-actions/preview", json=body).json or {})["count"] == 2


def test_scheduled_tasks_run_now(system: System, http: FlaskClient) -> None:
    ids = [system.submit("noop", delay=timedelta(hours=1)) for _ in range(3)]
    _post(http, "/bulk-actions", action="run_now", filter={"status": "scheduled"})
    _carry_out(system)
    assert _states(system, ids) == [S.PENDING] * 3


def test_waiting_tasks_move_to_another_queue_with_their_due_times(system: System, http: FlaskClient) -> None:
    soon, later = system.submit("noop", queue="low"), system.submit("noop", queue="low", delay=timedelta(hours=1))
    due = system.records.get(later).summary.due_at
    stays = system.submit("noop", queue="high")
    limited = system.submit("noop", queue="low", fair_key="tenant")
    started = _post(http, "/bulk-actions", action="move", filter={"type": "noop"}, to="high", rate=1000)
    _carry_out(system)
    assert {system.records.get(each).summary.queue for each in (soon, later, stays, limited)} == {"high"}
    assert system.records.get(later).summary.due_at == due
    shown = http.get(f"/bulk-actions/{started['action_id']}").json
    assert shown
    assert (shown["total"], shown["done"]) == (3, 3)
    worker = system.start_worker(WORKER_QUEUES="high")
    for each in (soon, stays, limited):
        assert system.ended(each).summary.state is S.COMPLETED
    worker.terminate()
    worker.wait(90)


def test_a_move_leaves_what_a_full_queue_has_no_place_for(system: System) -> None:
    http = create_app(Settings(max_queue_length=3), system.redis).test_client()
    system.submit("noop", queue="high")
    ids = [system.submit("noop", queue="low") for _ in range(5)]
    later = system.submit("noop", queue="low", delay=timedelta(hours=1))
    started = _post(http, "/bulk-actions", action="move", filter={"queue": "low"}, to="high", rate=1000)
    _carry_out(system)
    shown = http.get(f"/bulk-actions/{started['action_id']}").json
    assert shown
    assert (shown["status"], shown["done"], shown["skipped"]) == ("finished", 3, 3)
    queues = [system.records.get(each).summary.queue for each in (*ids, later)]
    assert queues == ["high"] * 2 + ["low"] * 3 + ["high"]


def test_ended_tasks_of_one_state_are_deleted(system: System, http: FlaskClient) -> None:
    ids = [system.submit("noop") for _ in range(3)]
    kept = system.submit("noop")
    for each in ids:
        system.queues.cancel(each, "no")
    _post(http, "/bulk-actions", action="delete", filter={"status": "cancelled"})
    _carry_out(system)
    assert system.records.summaries(ids) == []
    assert system.records.state(kept) is S.PENDING


def test_a_queue_is_emptied(system: System, http: FlaskClient) -> None:
    ids = [system.submit("noop", queue="low"), system.submit("noop", queue="low", delay=timedelta(hours=1))]
    stays = system.submit("noop", queue="normal")
    assert _post(http, "/queues/low/empty", rate=500)["total"] == 2
    _carry_out(system)
    assert _states(system, [*ids, stays]) == [S.CANCELLED, S.CANCELLED, S.PENDING]
    _post(http, "/queues/nowhere/empty", 404)


def test_it_is_paused_resumed_and_aborted(system: System, http: FlaskClient) -> None:
    ids = [system.submit("noop") for _ in range(3)]
    path = f"/bulk-actions/{_post(http, '/bulk-actions', action='cancel', task_ids=ids)['action_id']}"
    assert _post(http, f"{path}/pause", 200)["status"] == "paused"
    _carry_out(system)
    assert _states(system, ids) == [S.PENDING] * 3
    assert _post(http, f"{path}/resume", 200)["status"] == "running"
    assert _post(http, f"{path}/abort", 200)["status"] == "aborted"
    _carry_out(system)
    assert _states(system, ids) == [S.PENDING] * 3
    assert "start another" in _post(http, f"{path}/resume", 409)["detail"]
    _post(http, "/bulk-actions/unknown/pause", 404)


@pytest.mark.parametrize(
    ("body", "advice"),
    [
        ({"action": "cancel"}, "filter with at least one field"),
        ({"action": "cancel", "filter": {}}, "filter with at least one field"),
        ({"action": "cancel", "filter": {"type": "x"}, "task_ids": ["a"]}, "either a filter"),
        ({"action": "cancel", "filter": {"status": "completed"}}, "choose pending"),
        ({"action": "move", "filter": {"type": "x"}}, "name the queue"),
        ({"action": "retry", "filter": {"type": "x"}, "to": "low"}, "only a move"),
        ({"action": "retry", "filter": {"type": "x"}, "rate": 0}, "rate"),
    ],
)
def test_a_contradiction_is_refused_with_advice(http: FlaskClient, body: dict[str, Any], advice: str) -> None:
    assert advice in _post(http, "/bulk-actions", 422, **body)["detail"]


def test_very_many_examined_tasks_give_an_estimate(system: System, http: FlaskClient, monkeypatch: Any) -> None:
    monkeypatch.setattr("firmq.shared.features.bulk.store.COUNTED", 50)
    monkeypatch.setattr("firmq.shared.features.bulk.store.EXAMINED", 25)
    for n in range(200):
        system.submit("noop", tags=("even",) if n % 2 == 0 else ())
    found = _post(http, "/bulk-actions/preview", 200, action="cancel", filter={"tag": "even"})
    assert (found["count"], found["exact"]) == (100, False)


def test_only_ended_actions_are_forgotten_and_open_ones_bounded(
    system: System, http: FlaskClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bulk_store, "KEPT", 3)
    monkeypatch.setattr(bulk_store, "MOST_OPEN", 4)
    waiting = [system.submit("noop", queue="low") for _ in range(60)]
    open_ones = [
        _post(http, "/bulk-actions", action="cancel", filter={"queue": "low"}, rate=1)["action_id"],
        _post(http, "/bulk-actions", action="cancel", filter={"queue": "low", "search": "id:x"}, rate=1)["action_id"],
    ]
    _post(http, f"/bulk-actions/{open_ones[0]}/pause", 200)
    ended = []
    for _ in range(8):
        ended.append(_post(http, "/bulk-actions", action="cancel", filter={"queue": "high"}, rate=5)["action_id"])
        _post(http, f"/bulk-actions/{ended[-1]}/abort", 200)
    found: Any = http.get("/bulk-actions").json
    listed = [each["action_id"] for each in found["items"]]
    assert listed == [*ended[:-4:-1], *open_ones[::-1]]
    assert http.get(f"/bulk-actions/{ended[0]}").status_code == 404
    assert _states(system, waiting) == [S.PENDING] * 60
    # One whose record is lost leaves a place.
    system.redis.sadd(BULK.OPEN_BULKS, "0123456789abcdef")
    for _ in range(2):
        _post(http, "/queues/high/empty", rate=5)
    refused: Any = http.post("/bulk-actions", json={"action": "cancel", "filter": {"queue": "high"}, "rate": 5})
    assert (refused.status_code, refused.json["type"]) == (429, "/problems/asked-too-often")
    assert "4 bulk actions are open" in refused.json["detail"]
    assert http.post(f"/bulk-actions/{ended[-1]}/undo").status_code == 429
    _post(http, f"/bulk-actions/{open_ones[0]}/abort", 200)
    _post(http, "/queues/high/empty", rate=5)


def test_dead_letters_are_retried_with_changed_data(system: System, http: FlaskClient) -> None:
    TaskTypes(system.redis).publish([TaskType(name="fail", schema={"properties": {"amount": {"type": "integer"}}})])
    ids = bury(system, ["no"] * 3)
    body: dict[str, Any] = {"action": "retry", "filter": {"type": "fail"}}
    shown = _post(http, "/bulk-actions/preview", 200, **body, patch={"amount": 4})
    change = {
        "task_id": shown["changes"][0]["task_id"],
        "before": {"amount": 3},
        "after": {"amount": 4},
        "problem": None,
    }
    assert (shown["changes"][0], shown["checked"], shown["unfit"]) == (change, 3, 0)
    bad = _post(http, "/bulk-actions/preview", 200, **body, patch={"amount": "x"})
    assert (bad["unfit"], bad["changes"][0]["problem"]) == (3, 'data.amount: "x" is not of type "integer"')
    refused = _post(http, "/bulk-actions", 422, **body, patch={"amount": "x"})
    assert "3 of 3 dead letters" in refused["errors"][0]["detail"]
    assert _post(http, "/bulk-actions", 422, action="delete", filter={"type": "fail"}, patch={"amount": 4})
    assert http.get("/bulk-actions").json == {"items": [], "unreadable": []}
    assert _post(http, "/bulk-actions", **body, patch={"amount": 4})["what"].endswith('changed by {"amount": 4}')
    assert _states(system, ids) == [S.FAILED] * 3


@pytest.mark.parametrize("action", ["cancel", "delete"])
def test_a_bulk_action_is_undone_and_others_stay(system: System, http: FlaskClient, action: str) -> None:
    ids = [system.submit("noop") for _ in range(250)] if action == "cancel" else bury(system, ["no"] * 250)
    other = system.submit("noop", queue="low")
    status = "pending" if action == "cancel" else "failed"
    started = _post(http, "/bulk-actions", action=action, filter={"status": status, "queue": "normal"}, rate=5000)
    path = f"/bulk-actions/{started['action_id']}"
    assert "abort it first" in _post(http, f"{path}/undo", 409)["detail"]
    _carry_out(system)
    system.queues.cancel(other, "by someone else")
    assert _post(http, f"{path}/undo")["total"] == 250
    _carry_out(system)
    assert {system.records.state(each) for each in ids} == {S(status)}
    assert system.records.state(other) is S.CANCELLED


@pytest.mark.parametrize("stopped", [False, True], ids=["before its worker knows", "after its worker stopped it"])
def test_the_undo_of_a_cancel_includes_tasks_that_still_run(system: System, http: FlaskClient, stopped: bool) -> None:
    store = Store(system.redis, FakeClock(), system.scripts, system.queues, system.records)
    task, ended = (system.submit("noop", tags=("x",)) for _ in range(2))
    store.claim(2)
    started = _post(http, "/bulk-actions", action="cancel", filter={"tag": "x", "status": "running"})
    path = f"/bulk-actions/{started['action_id']}"
    _carry_out(system)
    store.report(ended, "cancelled")
    assert _post(http, f"{path}/undo")["total"] == 2
    _carry_out(system)
    assert store.extend(task) == 0, "it is not to be cancelled any more"
    assert store.report(task, "cancelled" if stopped else "completed") == 1
    assert system.records.state(task) is (S.PENDING if stopped else S.COMPLETED)
    assert system.records.state(ended) is S.PENDING


def test_tasks_of_a_filter_are_restored(system: System, http: FlaskClient) -> None:
    ids = [system.submit("noop", tags=("x",)) for _ in range(3)]
    for each in ids:
        system.queues.cancel(each, "no")
    assert _post(http, "/bulk-actions", action="restore", filter={"tag": "x"})["total"] == 3
    _carry_out(system)
    assert {system.records.state(each) for each in ids} == {S.PENDING}
    assert "only be restored" in _post(http, "/bulk-actions", 422, action="delete", filter={"deleted": True})["detail"]
    assert json.dumps(_post(http, "/bulk-actions/preview", 200, action="restore", filter={"deleted": True}))
