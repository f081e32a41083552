"""Batches whose tasks are made from earlier ones."""

from __future__ import annotations

import tracemalloc
from typing import Any

import pytest

from firmq.gateway.routes.batches import BatchSubmission
from firmq.gateway.tasks import earlier_tasks
from firmq.shared.errors import StoreUnavailable
from firmq.shared.stores.api_keys import Scope, new_key
from tests.integration.gateway.conftest import MakeGateway
from tests.integration.gateway.driving import Gateway, problem
from tests.integration.gateway.test_keys import bearer
from tests.support.keys import keys

RENDERED = {"status": "completed", "tag": "rendered"}
PUBLISH = {
    "type": "process",
    "data": {"of": {"$from": "id"}, "url": {"$from": "result.urls.1"}, "n": {"$from": "data"}},
}


def rendered(gateway: Gateway, number: int = 3) -> list[str]:
    """Completed tasks with a tag; their ids, the oldest first."""
    ids = [gateway.submit(data=n, tags=["rendered"]) for n in range(number)]
    gateway.start()
    for n, each in enumerate(ids):
        gateway.complete(each, {"urls": ["", f"https://x/{n}"]})
    return ids


def create(gateway: Gateway, source: Any, task: Any, **more: Any) -> Any:
    headers = more.pop("headers", {})
    return gateway.http.post("/batches", json={"from": source, "task": task, **more}, headers=headers)


def data_of(gateway: Gateway, items: list[Any]) -> list[Any]:
    return [gateway.show(each["task_id"])["data"] for each in items]


def test_a_batch_has_a_task_for_each_earlier_one(gateway: Gateway) -> None:
    ids = rendered(gateway)
    gateway.submit(data="another")
    answer = create(gateway, RENDERED, {**PUBLISH, "tags": ["published"]}, name="publish", max_running=2)
    assert (answer.status_code, answer.json["accepted"], answer.json["refused"]) == (202, 3, 0)
    assert data_of(gateway, answer.json["items"]) == [
        {"of": each, "url": f"https://x/{n}", "n": n} for n, each in enumerate(ids)
    ]
    batch = gateway.http.get(f"/batches/{answer.json['batch_id']}").json
    assert batch
    assert (batch["name"], batch["status"], batch["total"], batch["max_running"]) == ("publish", "running", 3, 2)


def test_the_tasks_of_an_earlier_batch_are_taken_in_their_order(gateway: Gateway) -> None:
    tasks = [{"type": "process", "data": n} for n in range(4)]
    first = gateway.http.post("/tasks/batch", json={"tasks": tasks}).json
    assert first
    ids = [each["task_id"] for each in first["items"]]
    gateway.start()
    for each in ids[:3]:
        gateway.complete(each)
    source = {"batch_id": first["batch_id"], "status": "completed"}
    answer = create(gateway, source, {"type": "process", "data": [{"$from": "data"}, "as it is", {"$from": "result"}]})
    assert data_of(gateway, answer.json["items"]) == [[n, "as it is", None] for n in range(3)]
    problem(create(gateway, {"batch_id": "none"}, PUBLISH), 404, "not-found")


def test_a_task_that_lacks_a_value_is_refused_by_itself(gateway: Gateway) -> None:
    ids = rendered(gateway, 1)
    waiting = gateway.submit(data={"a": 1}, tags=["rendered"])
    answer = create(gateway, {"tag": "rendered"}, PUBLISH)
    assert (answer.status_code, answer.json["accepted"], answer.json["refused"]) == (207, 1, 1)
    assert answer.json["items"][1]["problem"]["detail"] == (
        f"task.data: there is no result, but the status pending, of task {waiting}"
    )
    answer = create(gateway, {"tag": "rendered"}, {"type": "process", "data": {"$from": "data.a"}})
    assert f"there is no data.a in the record of task {ids[0]}" in answer.json["items"][0]["problem"]["detail"]
    assert data_of(gateway, answer.json["items"][1:]) == [1]


def test_no_earlier_task_is_no_batch(gateway: Gateway) -> None:
    key = {"Idempotency-Key": "publish"}
    for source in (RENDERED, {**RENDERED, "limit": 5}):
        detail = problem(create(gateway, source, PUBLISH, headers=key), 422, "invalid-request")["detail"]
        assert detail == "from: matches no task: nothing was created"
    assert gateway.http.get("/batches").json == {"items": [], "next_cursor": None}
    rendered(gateway, 1)
    assert create(gateway, RENDERED, PUBLISH, headers=key).json["accepted"] == 1


def test_a_limit_cuts_off_all_but_the_latest_tasks_of_a_filter(
    gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = rendered(gateway, 5)
    monkeypatch.setattr("firmq.shared.stores.selection.CHUNK", 2)
    for limit, expected in ((1, ids[4:]), (2, ids[3:]), (3, ids[2:]), (5, ids), (9, ids)):
        answer = create(gateway, {**RENDERED, "limit": limit}, PUBLISH)
        assert [each["of"] for each in data_of(gateway, answer.json["items"])] == expected
    # What it leaves does not count, nor what would have to be examined for more.
    monkeypatch.setattr(earlier_tasks, "MOST", 2)
    monkeypatch.setattr("firmq.shared.stores.selection.PAGES", 1)
    assert create(gateway, {**RENDERED, "limit": 2}, PUBLISH).json["accepted"] == 2
    for wrong in (0, -1, "all"):
        problem(create(gateway, {**RENDERED, "limit": wrong}, PUBLISH), 422, "invalid-request")


def test_a_limit_takes_the_first_tasks_of_a_batch(gateway: Gateway) -> None:
    tasks = [{"type": "process", "data": n} for n in range(4)]
    first = gateway.http.post("/tasks/batch", json={"tasks": tasks}).json
    assert first
    source = {"batch_id": first["batch_id"], "limit": 3}
    answer = create(gateway, source, {"type": "process", "data": {"$from": "data"}})
    assert data_of(gateway, answer.json["items"]) == [0, 1, 2]


def test_the_template_can_name_the_tasks_by_tags(gateway: Gateway) -> None:
    for n in range(2):
        gateway.submit(data={"order": f"order-{n}"}, tags=["named"])
    task = {"type": "process", "data": 1, "tags": ["batch-exec-001", {"$from": "data.order"}]}
    made = create(gateway, {"tag": "named"}, task).json["items"]
    listed = gateway.http.get("/tasks?tag=order-1").json
    assert listed
    assert [each["task_id"] for each in listed["items"]] == [made[1]["task_id"]]


def test_a_request_that_is_repeated_has_the_same_tasks(gateway: Gateway, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also when Redis failed in the middle and other tasks match by then."""
    rendered(gateway)
    key = {"Idempotency-Key": "publish"}
    store = BatchSubmission._store

    def fails(*_: Any) -> Any:
        raise StoreUnavailable("away")

    monkeypatch.setattr(BatchSubmission, "_store", fails)
    assert create(gateway, RENDERED, PUBLISH, headers=key).status_code == 503
    monkeypatch.setattr(BatchSubmission, "_store", store)
    rendered(gateway, 2)
    gateway.redis.hset(gateway.redis.keys(keys.idempotency("*"))[0], "until", 0)
    first = create(gateway, RENDERED, PUBLISH, headers=key)
    again = create(gateway, RENDERED, PUBLISH, headers=key)
    assert (first.json["accepted"], again.json) == (3, first.json)
    assert again.headers["Idempotency-Replayed"] == "true"
    batch = gateway.http.get(f"/batches/{first.json['batch_id']}").json
    assert batch
    assert (batch["status"], batch["total"]) == ("running", 3)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"from": RENDERED}, "from and task belong together"),
        ({"task": PUBLISH}, "from and task belong together"),
        ({"from": RENDERED, "task": PUBLISH, "tasks": [{"type": "process"}]}, "give one of them"),
        (
            {"from": RENDERED, "task": {"type": "process", "data": {"$from": "error.type"}}},
            "must be id, data or result",
        ),
        ({"from": RENDERED, "task": {"type": "process", "data": [{"$from": 1}]}}, "must be id, data or result"),
        ({"from": {"deleted": True}, "task": PUBLISH}, "deleted"),
        ({"from": {"colour": "red"}, "task": PUBLISH}, "colour"),
    ],
)
def test_a_wrong_request_says_what_to_change(gateway: Gateway, body: Any, words: str) -> None:
    assert words in problem(gateway.http.post("/batches", json=body), 422, "invalid-request")["detail"]


def test_too_many_tasks_are_refused(gateway: Gateway, monkeypatch: pytest.MonkeyPatch) -> None:
    rendered(gateway)
    monkeypatch.setattr(earlier_tasks, "MOST", 2)
    detail = problem(create(gateway, RENDERED, PUBLISH), 422, "invalid-request")["detail"]
    assert "matches more than 2 tasks: narrow it" in detail
    monkeypatch.setattr("firmq.shared.stores.selection.PAGES", 0)
    detail = problem(create(gateway, RENDERED, PUBLISH), 422, "invalid-request")["detail"]
    assert "has to examine too many tasks" in detail


def test_the_tasks_are_bounded_in_size(make_gateway: MakeGateway, monkeypatch: pytest.MonkeyPatch) -> None:
    gateway = make_gateway(max_body_bytes=2000)
    for size in (100, 1500):
        gateway.submit(data="x" * size)
    task = {"type": "process", "data": [{"$from": "data"}] * 2}
    answer = create(gateway, {"type": "process"}, task)
    assert (answer.json["accepted"], answer.json["refused"]) == (1, 1)
    assert "would have 3" in answer.json["items"][1]["problem"]["detail"]
    monkeypatch.setattr(earlier_tasks, "MOST_BYTES", 1000)
    assert "narrow it" in problem(create(gateway, {"type": "process"}, task), 422, "invalid-request")["detail"]
    many = {"type": "process", "data": [{"$from": "id"}] * 101}
    detail = problem(create(gateway, {"type": "process"}, many), 422, "invalid-request")["detail"]
    assert "has 101 values of the earlier task, at most 100 are allowed" in detail


def test_memory_is_bounded_where_the_earlier_tasks_are_large(gateway: Gateway) -> None:
    for _ in range(30):
        gateway.submit(data={"n": 1, "text": "x" * 1_000_000})
    tracemalloc.start()
    answer = create(gateway, {"type": "process"}, {"type": "process", "data": {"$from": "data.n"}})
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert answer.json["accepted"] == 30
    assert peak < 20 << 20, "the earlier tasks have 30 MB"
    many = {"type": "process", "data": [{"$from": "data"}] * 9}
    for _ in range(20):
        gateway.submit(data=[[]] * 9_000, tags=["values"])
    refused = problem(create(gateway, {"tag": "values"}, many), 422, "invalid-request")
    assert "more than 64 MiB of memory" in refused["detail"]


def test_few_are_carried_out_at_a_time(gateway: Gateway, monkeypatch: pytest.MonkeyPatch) -> None:
    rendered(gateway)
    with monkeypatch.context() as patch:
        patch.setattr("threading.BoundedSemaphore.acquire", lambda *_, **__: False)
        problem(create(gateway, RENDERED, PUBLISH), 429, "asked-too-often")
    assert create(gateway, RENDERED, PUBLISH).status_code == 202


def test_it_needs_the_right_to_read(make_gateway: MakeGateway) -> None:
    both, may = new_key("both", [Scope.SUBMIT, Scope.READ])
    submit, may_not = new_key("submit", [Scope.SUBMIT])
    gateway = make_gateway(api_keys=(both.line, submit.line))
    problem(create(gateway, RENDERED, PUBLISH, headers=bearer(may_not)), 403, "scope-missing")
    assert (
        "matches no task"
        in problem(create(gateway, RENDERED, PUBLISH, headers=bearer(may)), 422, "invalid-request")["detail"]
    )
