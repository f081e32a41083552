"""Bulk actions over three partitions, which are shown and changed as one."""

from __future__ import annotations

import json
from typing import Any

import pytest
from werkzeug.test import Client

from firmq.gateway.app import create_router
from firmq.gateway.partitions.members import Answer
from firmq.shared.config.settings import Settings
from firmq.shared.domain.partition import partition_of_id
from firmq.shared.stores.api_keys import Scope, new_key
from firmq.shared.stores.bulk_actions import BulkActions, Plan, Selection, Verb
from firmq.shared.stores.dead_letters import DeadLetters
from firmq.shared.stores.queues import Queues
from firmq.shared.stores.task_types import TaskType, TaskTypes
from firmq.shared.stores.tasks import Filter, Records
from tests.integration.dashboard.conftest import fail_all
from tests.integration.partitions.conftest import Routed

CANCEL = {"action": "cancel", "filter": {"type": "process"}}


def place(said: str) -> int:
    return partition_of_id(said) or 0


def actions(routed: Routed, number: int) -> BulkActions:
    scripts = routed.scripts[number]
    records = Records(scripts, Queues.of(scripts, routed.settings).register)
    return BulkActions(scripts, DeadLetters(scripts, records))


def carry_out(routed: Routed, *numbers: int) -> None:
    """Carries out what is open in these partitions."""
    for number in numbers:
        own = actions(routed, number)
        for each in own.unfinished():
            while own.step(each, 100)[1]:
                pass


def fill(routed: Routed, *counts: int) -> list[str]:
    return [routed.submit_to(number) for number, count in enumerate(counts) for _ in range(count)]


def begun(routed: Routed, body: dict[str, Any]) -> dict[str, Any]:
    answer = routed.post("/bulk-actions", body)
    assert answer.status_code == 202, answer.text
    found: dict[str, Any] = answer.json
    return found


def test_one_request_begins_one_action_over_all_partitions(routed: Routed) -> None:
    tasks = fill(routed, 3, 1, 2)
    action = begun(routed, {**CANCEL, "reason": "wrong"})
    assert (action["total"], action["done"], action["status"], action["exact"]) == (6, 0, "running", True)
    assert [each["action_id"] for each in routed.get("/bulk-actions")["items"]] == [action["action_id"]]
    carry_out(routed, 0, 2)
    shown = routed.get(f"/bulk-actions/{action['action_id']}")
    assert (shown["total"], shown["done"], shown["status"], shown["ended_at"]) == (6, 5, "running", None)
    carry_out(routed, 1)
    shown = routed.get(f"/bulk-actions/{action['action_id']}")
    assert (shown["done"], shown["status"]) == (6, "finished")
    assert shown["ended_at"] is not None
    assert {routed.get(f"/tasks/{each}")["status"] for each in tasks} == {"cancelled"}


def test_the_id_of_each_part_shows_the_whole(routed: Routed) -> None:
    fill(routed, 1, 1, 1)
    begun(routed, CANCEL)
    ids = [actions(routed, number).all()[0][0].id for number in range(3)]
    assert [place(each) for each in ids] == [0, 1, 2]
    for each in ids:
        shown = routed.get(f"/bulk-actions/{each}")
        assert (shown["action_id"], shown["total"]) == (each, 3)


def test_the_rate_is_that_of_all_partitions(routed: Routed) -> None:
    fill(routed, 6, 3, 0)
    action = begun(routed, {**CANCEL, "rate": 90})
    assert action["rate"] == 90
    assert [[each.rate for each in actions(routed, number).all()[0]] for number in range(3)] == [[60], [30], []]
    [entry] = routed.get("/audit?limit=100")["items"]
    assert entry["detail"].startswith("cancel: 9 tasks, 90 per second")


@pytest.mark.parametrize("limit", [1, 2, 4, 8, 9])
def test_the_limit_is_that_of_all_partitions(routed: Routed, limit: int) -> None:
    tasks = fill(routed, 5, 3, 0)
    body = {"action": "cancel", "filter": {"type": "process", "limit": limit}}
    assert routed.post("/bulk-actions/preview", body).json["count"] == min(limit, 8)
    action = begun(routed, body)
    carry_out(routed, 0, 1, 2)
    shown = routed.get(f"/bulk-actions/{action['action_id']}")
    assert (shown["total"], shown["done"], shown["status"]) == (min(limit, 8), min(limit, 8), "finished")
    assert sum(routed.get(f"/tasks/{each}")["status"] == "cancelled" for each in tasks) == min(limit, 8)


def test_the_canary_is_that_of_all_partitions(routed: Routed) -> None:
    body = {"action": "retry", "filter": {"type": "process"}, "canary": 9}
    action = begun(routed, body)
    assert (action["canary"], action["success"]) == (9, 95)
    assert [actions(routed, number).all()[0][0].canary for number in range(3)] == [3, 3, 3]


@pytest.mark.parametrize("wrong", [{"rate": 5001}, {"rate": 0}, {"canary": 3}, {"nonsense": 1}, {"task_ids": ["a"]}])
def test_what_is_wrong_begins_nothing(routed: Routed, wrong: dict[str, Any]) -> None:
    fill(routed, 1, 1, 1)
    assert routed.post("/bulk-actions", {**CANCEL, **wrong}).status_code == 422
    assert routed.post("/bulk-actions", []).status_code == 422
    assert routed.http.post("/bulk-actions", data=b"{", content_type="application/json").status_code == 400
    assert routed.get("/bulk-actions")["items"] == []


def test_named_tasks_are_processed_where_they_are(routed: Routed) -> None:
    tasks = fill(routed, 1, 2, 2)
    chosen = [tasks[0], tasks[1], tasks[3], tasks[4]]
    body = {"action": "cancel", "task_ids": chosen}
    assert routed.post("/bulk-actions/preview", body).json["count"] == 4
    action = begun(routed, body)
    assert action["total"] == 4
    carry_out(routed, 0, 1, 2)
    shown = routed.get(f"/bulk-actions/{action['action_id']}")
    assert (shown["done"], shown["skipped"], shown["status"]) == (4, 0, "finished")
    assert routed.get(f"/tasks/{tasks[2]}")["status"] == "pending"


def test_an_action_is_paused_resumed_and_aborted_in_all_partitions(routed: Routed) -> None:
    fill(routed, 1, 1, 1)
    path = f"/bulk-actions/{begun(routed, CANCEL)['action_id']}"
    paused = routed.post(f"{path}/pause")
    assert (paused.status_code, paused.json["status"], paused.json["total"]) == (200, "paused", 3)
    assert [actions(routed, number).all()[0][0].state for number in range(3)] == ["paused"] * 3
    assert routed.post(f"{path}/resume").json["status"] == "running"
    carry_out(routed, 1)
    aborted = routed.post(f"{path}/abort")
    assert (aborted.status_code, aborted.json["status"], aborted.json["done"]) == (200, "aborted", 1)
    assert [actions(routed, number).all()[0][0].state for number in range(3)] == ["aborted", "finished", "aborted"]
    assert routed.post(f"{path}/abort").status_code == 409
    entries = [(each["what"], each["about"]) for each in routed.get("/audit?limit=100")["items"]]
    names = ("aborted bulk action", "resumed bulk action", "paused bulk action", "started bulk action")
    assert [what for what, _ in entries] == list(names), "each change is recorded once"
    assert len({about for _, about in entries}) == 1


def test_a_change_is_recorded_where_a_part_is_still_open(routed: Routed) -> None:
    fill(routed, 1, 1, 1)
    path = f"/bulk-actions/{begun(routed, CANCEL)['action_id']}"
    carry_out(routed, 0)
    assert routed.post(f"{path}/pause").json["status"] == "paused"
    assert [each["what"] for each in routed.get("/audit?limit=100")["items"]] == [
        "paused bulk action",
        "started bulk action",
    ]


def test_an_undo_restores_the_tasks_of_all_partitions(routed: Routed) -> None:
    tasks = fill(routed, 1, 2, 1)
    path = f"/bulk-actions/{begun(routed, CANCEL)['action_id']}"
    carry_out(routed, 0, 1)
    assert routed.post(f"{path}/undo").status_code == 409, "a part is still open"
    assert len(routed.get("/bulk-actions")["items"]) == 1
    carry_out(routed, 2)
    undo = routed.post(f"{path}/undo")
    assert (undo.status_code, undo.json["total"], undo.json["action"]) == (202, 4, "restore")
    carry_out(routed, 0, 1, 2)
    assert routed.get(undo.headers["Location"])["done"] == 4
    assert {routed.get(f"/tasks/{each}")["status"] for each in tasks} == {"pending"}
    assert routed.post(f"{undo.headers['Location']}/undo").status_code == 409, "a restoration cannot be undone"


def test_a_queue_is_emptied_in_all_partitions(routed: Routed) -> None:
    fill(routed, 2, 1, 1)
    action = routed.post("/queues/normal/empty", {"rate": 40})
    assert (action.status_code, action.json["total"], action.json["rate"]) == (202, 4, 40)
    assert actions(routed, 0).all()[0][0].rate == 20
    assert routed.post("/queues/nosuch/empty", {}).status_code == 404


def test_a_queue_of_one_partition_is_emptied_there(routed: Routed) -> None:
    routed.submit_to(1, queue="imports")
    fill(routed, 1, 1, 1)
    action = routed.post("/queues/imports/empty")
    assert (action.status_code, action.json["total"]) == (202, 1)
    assert [len(actions(routed, number).all()[0]) for number in range(3)] == [0, 1, 0]


def test_a_move_into_a_queue_that_one_partition_does_not_know_begins_in_none(routed: Routed) -> None:
    routed.submit_to(1, queue="imports")
    fill(routed, 1, 1, 1)
    answer = routed.post("/bulk-actions", {"action": "move", "to": "imports", "filter": {"type": "process"}})
    assert (answer.status_code, answer.json["instance"]) == (422, "/bulk-actions")
    assert routed.get("/bulk-actions")["items"] == []


def test_many_ids_are_not_looked_for(routed: Routed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routed.router, "locate", lambda _: pytest.fail("each costs a command in every partition"))
    body = {"action": "cancel", "task_ids": [f"job-{number}" for number in range(1001)]}
    assert routed.post("/bulk-actions", body).status_code == 422
    assert routed.post("/bulk-actions/preview", body).status_code == 422


def test_without_a_key_no_id_is_looked_for(three: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("firmq.gateway.partitions.members.Members.watch", lambda members: None)
    key, text = new_key("shop", [Scope.READ])
    router = create_router(Settings.model_validate({**three.model_dump(), "api_keys": [key.line]}))
    monkeypatch.setattr(router, "locate", lambda _: pytest.fail("it costs a command in every partition"))
    http, body = Client(router), {"action": "cancel", "task_ids": ["job-1"]}
    assert http.post("/bulk-actions", json=body).status_code == 401
    assert http.post("/bulk-actions/preview", json=body).status_code == 401
    assert http.post("/bulk-actions", json=body, headers={"Authorization": f"Bearer {text}"}).status_code == 403


def test_nothing_begins_where_a_partition_is_lost_before_it_is_known(
    routed: Routed, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(routed, 1, 1, 1)
    monkeypatch.setattr(routed.router.members.all[1], "call", lambda *_: Answer(1, 503, [], b"{}"))
    answer = routed.post("/bulk-actions", CANCEL)
    assert (answer.status_code, answer.json["unchanged"]) == (503, True)
    assert not [each for number in range(3) for each in actions(routed, number).all()[0]]


def test_an_exhausted_rate_stops_a_change_in_all_partitions(
    three: Settings, routed: Routed, monkeypatch: pytest.MonkeyPatch
) -> None:
    key, text = new_key("shop", [Scope.OPERATE], rate="2/1h")
    router = create_router(Settings.model_validate({**three.model_dump(), "api_keys": [key.line]}))
    http, headers = Client(router), {"Authorization": f"Bearer {text}"}
    fill(routed, 1, 1, 1)
    path = http.post("/bulk-actions", json=CANCEL, headers=headers).headers["Location"]
    assert http.post(f"{path}/pause", headers=headers).status_code == 200, "one token for each request"
    assert http.post(f"{path}/resume", headers=headers).status_code == 429
    assert [actions(routed, number).all()[0][0].state for number in range(3)] == ["paused"] * 3


@pytest.mark.parametrize("task_id", ["\ud800", "a b", ""])
def test_an_id_that_is_none_is_refused(routed: Routed, task_id: str) -> None:
    for path in ("/bulk-actions", "/bulk-actions/preview"):
        assert routed.post(path, {"action": "cancel", "task_ids": [task_id]}).status_code in (400, 422)


def test_nothing_begins_while_a_partition_is_away(routed: Routed) -> None:
    fill(routed, 1, 1, 1)
    routed.router.members.all[1].answers = False
    answer = routed.post("/bulk-actions", CANCEL)
    assert (answer.status_code, answer.json["unchanged"]) == (503, True)
    assert "partition 1" in answer.json["detail"]
    routed.router.members.all[1].answers = True
    assert routed.get("/bulk-actions")["items"] == []


def test_what_answers_is_shown_and_changed_and_the_rest_is_named(
    routed: Routed, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(routed, 1, 1, 1)
    path = f"/bulk-actions/{begun(routed, CANCEL)['action_id']}"
    away = routed.router.members.all[1]
    away.answers = False
    shown = routed.get(path)
    assert (shown["total"], shown["unavailable_partitions"]) == (2, [1])
    paused = routed.post(f"{path}/pause")
    assert paused.status_code == 503
    assert "partition 1" in paused.json["detail"]
    assert [actions(routed, number).all()[0][0].state for number in range(3)] == ["paused", "running", "paused"]
    for number in (0, 2):
        actions(routed, number).change(actions(routed, number).all()[0][0].id, "aborted")
    ended = routed.post(f"{path}/abort")
    assert (ended.status_code, "has ended in the others" in ended.json["detail"]) == (503, True)
    away.answers = True
    assert routed.post(f"{path}/pause").json["status"] == "paused"

    monkeypatch.setattr(away, "call", lambda *_: Answer(1, 503, [], b"{}"))
    assert routed.get(path)["unavailable_partitions"] == [1]


def test_an_action_in_a_lost_partition_only_is_not_said_to_have_ended(
    routed: Routed, monkeypatch: pytest.MonkeyPatch
) -> None:
    routed.submit_to(1)
    path = f"/bulk-actions/{begun(routed, CANCEL)['action_id']}"
    detail = json.dumps({"detail": "Redis does not answer"}).encode()
    monkeypatch.setattr(routed.router.members.all[1], "call", lambda *_: Answer(1, 503, [], detail))
    answer = routed.post(f"{path}/pause")
    assert (answer.status_code, "has ended" in answer.text) == (503, False)


def test_an_unknown_action_is_not_found(routed: Routed) -> None:
    for said in ("0123456789abcdef", "nosuch"):
        assert routed.http.get(f"/bulk-actions/{said}").status_code == 404
        for change in ("pause", "resume", "abort", "undo"):
            assert routed.post(f"/bulk-actions/{said}/{change}").status_code == 404


def test_an_action_of_one_partition_is_shown_and_changed_there(routed: Routed) -> None:
    """For actions from before the system had several partitions, or of the dashboard of one."""
    own = actions(routed, 2)
    routed.submit_to(2)

    plan = Plan(verb=Verb.CANCEL, selection=Selection(wanted=Filter(type="process")))
    path = f"/bulk-actions/{own.begin(plan, what='some', by='me', rate=5)}"
    assert routed.get(path)["total"] == 1
    assert routed.post(f"{path}/pause").json["status"] == "paused"
    assert [each["what"] for each in routed.get("/audit?limit=100")["items"]] == ["paused bulk action"]


def test_changed_data_that_does_not_fit_in_one_partition_begins_nothing_in_any(routed: Routed) -> None:
    for number, kind in enumerate(("integer", "string", "integer")):
        schema = {"properties": {"added": {"type": kind}}}
        TaskTypes(routed.scripts[number].redis).publish([TaskType(name="odd", schema=schema)])
        fail_all(routed.scripts[number], {routed.submit_to(number, type="odd", data={}): "no"})
    body = {"action": "retry", "filter": {"type": "odd"}, "patch": {"added": 1}}
    shown = routed.post("/bulk-actions/preview", body).json
    assert (shown["count"], shown["checked"], shown["unfit"], len(shown["changes"])) == (3, 3, 1, 3)
    assert routed.post("/bulk-actions", body).status_code == 422
    assert routed.get("/bulk-actions")["items"] == []
