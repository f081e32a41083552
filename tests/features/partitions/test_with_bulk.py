"""Bulk actions with three partitions: each is in one of them."""

from __future__ import annotations

import re
from typing import Any

import pytest
from werkzeug.test import Client

from firmq.dashboard.auth.users import Users
from firmq.dashboard.features.partitions.app import PartitionedDashboard
from firmq.gateway.features.partitions.feature import create_router
from firmq.shared.config.settings import Settings
from firmq.shared.domain.store_number import store_of_id
from firmq.shared.features.bulk.store import BulkActions
from firmq.shared.stores.api_keys import Scope, new_key
from firmq.shared.stores.dead_letters import DeadLetters
from firmq.shared.stores.queues import Queues
from firmq.shared.stores.tasks import Records
from tests.features.partitions.conftest import Routed
from tests.features.partitions.test_dashboard import shown


def cancel(number: int) -> dict[str, Any]:
    return {"action": "cancel", "filter": {"type": "process", "partition": number}}


def place(said: str) -> int:
    return store_of_id(said) or 0


def carry_out(routed: Routed, number: int) -> None:
    scripts = routed.scripts[number]
    records = Records(scripts, Queues.of(scripts, routed.settings).register)
    own = BulkActions(scripts, DeadLetters(scripts, records))
    for each in own.unfinished():
        while own.step(each, 100)[1]:
            pass


def fill(routed: Routed, *counts: int) -> list[str]:
    return [routed.submit_to(number) for number, count in enumerate(counts) for _ in range(count)]


def test_an_action_is_in_the_partition_that_its_filter_names(routed: Routed) -> None:
    tasks = fill(routed, 1, 2, 1)
    assert routed.post("/bulk-actions/preview", cancel(1)).json["count"] == 2
    begun = routed.post("/bulk-actions", cancel(1))
    assert (begun.status_code, begun.json["total"], place(begun.json["action_id"])) == (202, 2, 1)
    path = begun.headers["Location"]
    assert routed.post(f"{path}/pause").json["status"] == "paused"
    assert routed.post(f"{path}/resume").json["status"] == "running"
    carry_out(routed, 1)
    assert (routed.get(path)["done"], routed.get(path)["status"]) == (2, "finished")
    assert [routed.get(f"/tasks/{each}")["status"] for each in tasks] == ["pending", *["cancelled"] * 2, "pending"]
    undo = routed.post(f"{path}/undo")
    assert (undo.status_code, undo.json["total"]) == (202, 2)
    other = routed.post("/bulk-actions", cancel(2)).json["action_id"]
    ids = [each["action_id"] for each in routed.get("/bulk-actions")["items"]]
    assert ids == [other, undo.json["action_id"], begun.json["action_id"]], "the newest first"


@pytest.mark.parametrize("number", [None, 3, -1, "1", True])
def test_a_filter_names_one_partition(routed: Routed, number: Any) -> None:
    fill(routed, 1, 1, 1)
    for path in ("/bulk-actions", "/bulk-actions/preview"):
        answer = routed.post(path, {**cancel(0), "filter": {"type": "process", "partition": number}})
        assert (answer.status_code, "one of the partitions 0, 1, 2" in answer.json["detail"]) == (422, True)
    assert routed.post("/bulk-actions", {"action": "cancel", "filter": {"partition": 1}}).status_code == 422
    assert routed.get("/bulk-actions")["items"] == []


def test_named_tasks_are_processed_where_they_are(routed: Routed) -> None:
    tasks = fill(routed, 1, 2, 1)
    begun = routed.post("/bulk-actions", {"action": "cancel", "task_ids": tasks[1:3]})
    assert (begun.status_code, begun.json["total"], place(begun.json["action_id"])) == (202, 2, 1)
    answer = routed.post("/bulk-actions", {"action": "cancel", "task_ids": tasks})
    assert (answer.status_code, "in the partitions 0, 1, 2" in answer.json["detail"]) == (422, True)


def test_a_queue_is_emptied_in_one_partition_at_a_time(routed: Routed) -> None:
    fill(routed, 1, 1, 1)
    answer = routed.post("/queues/normal/empty")
    assert (answer.status_code, "`queue` normal and `partition`" in answer.json["detail"]) == (422, True)


def test_a_batch_is_made_from_a_filter_of_one_partition(routed: Routed) -> None:
    fill(routed, 0, 0, 2)
    body = {"from": {"type": "process", "partition": 2}, "task": {"type": "process", "data": {"$from": "id"}}}
    made = routed.post("/batches", body)
    assert (made.status_code, place(made.json["batch_id"]), len(made.json["items"])) == (202, 2, 2)
    answer = routed.post("/batches", {**body, "from": {"type": "process"}})
    assert (answer.status_code, "a `partition` out of 0, 1, 2" in answer.json["detail"]) == (422, True)


@pytest.mark.parametrize("wrong", [{"rate": 5001}, {"rate": 0}, {"canary": 3}, {"nonsense": 1}, {"task_ids": ["a"]}])
def test_what_is_wrong_begins_nothing(routed: Routed, wrong: dict[str, Any]) -> None:
    fill(routed, 1, 1, 1)
    assert routed.post("/bulk-actions", {**cancel(0), **wrong}).status_code == 422
    assert routed.post("/bulk-actions", []).status_code == 422
    assert routed.http.post("/bulk-actions", data=b"{", content_type="application/json").status_code == 400
    assert routed.get("/bulk-actions")["items"] == []


def test_many_ids_are_not_looked_for(routed: Routed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routed.router, "locate_all", lambda _: pytest.fail("each costs a command in every partition"))
    body = {"action": "cancel", "task_ids": [f"job-{number}" for number in range(1001)]}
    assert routed.post("/bulk-actions", body).status_code == 422
    assert routed.post("/bulk-actions/preview", body).status_code == 422


def test_without_a_key_no_id_is_looked_for(three: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("firmq.gateway.features.partitions.members.Members.watch", lambda members: None)
    key, text = new_key("shop", [Scope.READ])
    router = create_router(Settings.model_validate({**three.model_dump(), "api_keys": [key.line]}))
    monkeypatch.setattr(router, "locate_all", lambda _: pytest.fail("it costs a command in every partition"))
    http, body = Client(router), {"action": "cancel", "task_ids": ["job-1"]}
    assert http.post("/bulk-actions", json=body).status_code == 401
    assert http.post("/bulk-actions/preview", json=body).status_code == 401
    assert http.post("/bulk-actions", json=body, headers={"Authorization": f"Bearer {text}"}).status_code == 403


@pytest.mark.parametrize("task_id", ["\ud800", "a b", ""])
def test_an_id_that_is_none_is_refused(routed: Routed, task_id: str) -> None:
    for path in ("/bulk-actions", "/bulk-actions/preview"):
        assert routed.post(path, {"action": "cancel", "task_ids": [task_id]}).status_code in (400, 422)


def test_an_unknown_action_is_not_found(routed: Routed) -> None:
    for said in ("0123456789abcdef", "nosuch"):
        assert routed.http.get(f"/bulk-actions/{said}").status_code == 404
        for change in ("pause", "resume", "abort", "undo"):
            assert routed.post(f"/bulk-actions/{said}/{change}").status_code == 404


@pytest.fixture
def pages(routed: Routed) -> Client:
    return Client(PartitionedDashboard(routed.settings, Users([])))


def test_the_page_of_an_action_is_that_of_its_partition(routed: Routed, pages: Client) -> None:
    for number in (2, 0, 1):
        routed.submit_to(number)
        action = routed.post("/bulk-actions", cancel(number)).json["action_id"]
        pages.get("/partitions/0")
        assert shown(pages, f"/bulk/{action}") == (200, str(number))


def form(page: str) -> dict[str, str]:
    return dict(re.findall(r'<input type="hidden" name="(csrf|store)" value="([^"]+)"', page))


def test_a_bulk_action_begins_in_the_partition_of_its_review(routed: Routed, pages: Client) -> None:
    for number in range(3):
        routed.submit_to(number)
    pages.get("/partitions/1")
    asked = {"verb": "cancel", "scope": "filter", "type": "process"}
    review = form(pages.post("/bulk/review", data={**asked, **form(pages.get("/queues").text)}).text)
    begun: Any = None
    for chosen, status in ((2, 400), (1, 302)):
        pages.get(f"/partitions/{chosen}")
        begun = pages.post("/bulk", data={**asked, **review, "rate": 50})
        assert (begun.status_code, "has been chosen since this review" in begun.text) == (status, status == 400)
    [action] = routed.get("/bulk-actions")["items"]
    assert (begun.headers["Location"].endswith(action["action_id"]), action["total"]) == (True, 1)
