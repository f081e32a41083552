"""Partitions that are drained and activated while tasks are submitted: each name has one holder until an activation."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from redis import Redis
from werkzeug.test import Client

from firmq import AsyncQueue, Queue, new_task
from firmq.shared.cli.output import Output
from firmq.shared.config.settings import Settings
from firmq.shared.domain.lock import NO_LOCK
from firmq.shared.domain.schedule import Schedule
from firmq.shared.domain.store_number import store_of_id
from firmq.shared.domain.task import NewTask, new_task_id
from firmq.shared.features.partitions.command import _Command, set_state
from firmq.shared.features.partitions.preference import preferred
from firmq.shared.redis.client import connect
from firmq.shared.redis.scripts import Scripts
from firmq.shared.stores.presence import Presence
from firmq.shared.stores.queues import Queues, submit_arguments
from firmq.shared.stores.schedules import Fired, ScheduleStore
from firmq.shared.stores.tasks import Records
from firmq.shared.submission.problems import Problem
from tests.features.partitions.conftest import Routed
from tests.support.clock import FakeClock
from tests.support.store import WEIGHTS, Store

BODY = {"type": "process", "data": 1}


def place(task_id: str) -> int:
    return store_of_id(task_id) or 0


def set_states(routed: Routed, number: int, state: Any) -> None:
    set_state(routed.scripts[number].redis, state)


def look(routed: Routed) -> None:
    for each in routed.router.members.all.values():
        each.look()


def order_of(unique_key: str) -> list[int]:
    """The partitions in the order in which a unique key of this type prefers them."""
    return preferred(f"unique process {unique_key}", range(3))


def key_at_home(home: int, *then: int) -> str:
    """A unique key that prefers these partitions, in this order."""
    wanted = [home, *then]
    return next(key for key in map(str, range(1000)) if order_of(key)[: len(wanted)] == wanted)


def idempotency_key_at(home: int) -> str:
    return next(key for key in map(str, range(1000)) if preferred(f"key {key}", range(3))[0] == home)


def row_at(home: int, *then: int) -> str:
    """A new id of a row that prefers these partitions, in this order."""
    wanted = [home, *then]
    return next(each for each in iter(new_task_id, "") if preferred(each, range(3))[: len(wanted)] == wanted)


def send_rows(routed: Routed, *rows: Any) -> tuple[int, list[dict[str, Any]]]:
    answer = routed.post("/tasks/outbox", {"rows": rows, "settled": []})
    return answer.status_code, answer.json["items"]


def unreachable() -> Redis:
    return connect("redis://127.0.0.1:1/0", timeout=0.1, retries=0)


def queue_of(routed: Routed) -> Queue:
    return Queue(**routed.settings.model_dump(include={"redis_url", "redis_partitions"}), patience=0.5)


def tasks(routed: Routed) -> list[int]:
    return [each.redis.zcard(each.keys.TASKS) for each in routed.scripts.values()]


# --- draining ---


def test_what_nothing_ties_does_not_go_to_a_draining_partition(routed: Routed) -> None:
    set_states(routed, 1, "draining")
    assert {place(routed.submit()) for _ in range(20)} == {0, 2}, "also before the gateway has looked"
    look(routed)
    assert 1 not in {each.number for each in routed.router.placement.candidates()}
    assert 1 not in {place(routed.submit()) for _ in range(20)}
    set_states(routed, 1, "active")
    look(routed)
    assert 1 in {place(routed.submit()) for _ in range(40)}


def test_when_all_are_draining_a_refusal_says_what_to_do(routed: Routed) -> None:
    for number in range(3):
        set_states(routed, number, "draining")
    for _ in range(2):
        for body in (BODY, {**BODY, "unique_key": "a"}):
            answer = routed.post("/tasks", body)
            assert (answer.status_code, answer.json["type"]) == (503, "/problems/no-partition")
            assert "firmq partitions activate" in answer.json["detail"]
            assert "Retry-After" in answer.headers
        look(routed)
    with queue_of(routed) as queue:
        for options in ({}, {"unique_key": "a"}):
            with pytest.raises(Problem, match="firmq partitions activate"):
                queue.submit("process", 1, **options)  # type: ignore[arg-type]  # as options of a call
    assert tasks(routed) == [0, 0, 0]


def test_what_belongs_to_a_draining_partition_still_goes_there(routed: Routed) -> None:
    parent = routed.submit_to(1)
    batch = routed.post("/batches", {"tasks": [{**BODY, "depends_on": [{"task_id": parent}]}]}).json["batch_id"]
    scheduled = next(name for name in map(str, range(99)) if preferred(name, range(3))[0] == 1)
    assert routed.http.put(f"/schedules/{scheduled}", json={"type": "process", "interval": 60}).status_code == 201
    set_states(routed, 1, "draining")
    look(routed)
    child = {"depends_on": [{"task_id": parent}]}
    assert place(routed.submit(**child)) == 1
    assert place(routed.post("/tasks", {**BODY, **child}, Idempotency_Key="a").json["task_id"]) == 1
    assert place(routed.post("/batches", {"tasks": [{**BODY, **child}]}, Idempotency_Key="b").json["batch_id"]) == 1
    more = routed.post(f"/batches/{batch}/tasks", {"tasks": [BODY]}, Idempotency_Key="c").json
    assert place(more["items"][0]["task_id"]) == 1
    assert place(routed.post(f"/schedules/{scheduled}/run").json["task_id"]) == 1
    assert routed.http.put(f"/schedules/{scheduled}", json={"type": "process", "interval": 30}).status_code == 200
    assert routed.scripts[1].redis.exists(routed.scripts[1].keys.schedule(scheduled))


@pytest.mark.parametrize("through", ["gateway", "queue"])
def test_a_unique_key_leaves_a_draining_partition_whatever_else_a_task_has(routed: Routed, through: str) -> None:
    key = key_at_home(1, 2)
    set_states(routed, 1, "draining")
    look(routed)
    webhook = [{"webhook": {"url": "https://example.com"}}] if through == "queue" else []
    more: Any
    for more in ({"fair_key": "a"}, *webhook):
        for idempotency_key in (None, f"{through}-{next(iter(more))}"):
            about = {**more, "unique_key": key}
            if through == "queue":
                with queue_of(routed) as queue:
                    task_id = queue.submit("process", 1, idempotency_key=idempotency_key, **about).task_id
            else:
                headers = {"Idempotency_Key": idempotency_key} if idempotency_key else {}
                task_id = routed.post("/tasks", {**BODY, **about}, **headers).json["task_id"]
            assert place(task_id) == 2
            assert routed.post("/tasks", {**BODY, "unique_key": key}).json["existing_task"] == task_id
            routed.http.delete(f"/tasks/{task_id}")


def test_a_new_schedule_whose_home_is_draining_goes_elsewhere(routed: Routed) -> None:
    name = next(name for name in map(str, range(99)) if preferred(name, range(3))[0] == 1)
    set_states(routed, 1, "draining")
    put = {"type": "process", "interval": 60}
    assert routed.http.put(f"/schedules/{name}", json=put).status_code == 503, "with an old view"
    look(routed)
    assert routed.http.put(f"/schedules/{name}", json=put).status_code == 201
    assert not routed.scripts[1].redis.exists(routed.scripts[1].keys.schedule(name))


def test_rows_of_an_outbox_are_stored_once(routed: Routed) -> None:
    rows = [{"task_id": new_task_id(), **BODY} for _ in range(20)]
    routed.post("/tasks/outbox", {"rows": rows[:10], "settled": []})
    set_states(routed, 1, "draining")
    routed.post("/tasks/outbox", {"rows": rows, "settled": []})
    look(routed)
    before = tasks(routed)[1]
    answer = routed.post("/tasks/outbox", {"rows": rows, "settled": []})
    assert answer.status_code == 202
    assert tasks(routed)[1] == before > 0
    assert sum(tasks(routed)) == 20


def test_rows_of_an_outbox_leave_a_draining_partition_before_the_gateway_has_looked(routed: Routed) -> None:
    rows = [{"task_id": row_at(home), **BODY} for home in (1, 0, 1, 2)]
    set_states(routed, 1, "draining")
    for _ in range(2):
        status, items = send_rows(routed, *rows, {"task_id": row_at(1), **BODY, "type": "unknown"})
        assert (status, [each["index"] for each in items]) == (207, [0, 1, 2, 3, 4])
        assert [each.get("task_id") for each in items[:4]] == [each["task_id"] for each in rows]
        assert items[4]["problem"]["status"] == 422
    assert (tasks(routed)[1], sum(tasks(routed))) == (0, 4)


def test_a_row_that_a_draining_partition_away_may_have_is_refused(routed: Routed) -> None:
    stored, key = {"task_id": row_at(1), **BODY}, key_at_home(1, 2)
    other = {"task_id": row_at(0), **BODY}
    assert send_rows(routed, stored)[0] == 202
    set_states(routed, 1, "draining")
    look(routed)
    routed.router.members.all[1].answers = False
    for row in (stored, {"task_id": row_at(0), **BODY, "unique_key": key}):
        answer = routed.post("/tasks/outbox", {"rows": [other, row]})
        assert (answer.status_code, answer.json["type"]) == (503, "/problems/store-unavailable")
        assert answer.json["unchanged"] is True
        assert "Retry-After" in answer.headers
    assert send_rows(routed, {"task_id": row_at(2, 1), **BODY})[0] == 202, "one that would not be there"
    assert tasks(routed) == [0, 1, 1]


def test_a_row_is_not_stored_twice_when_a_draining_partition_dies_between_two_looks(
    routed: Routed, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = {"task_id": row_at(1), **BODY}
    send_rows(routed, row)
    set_states(routed, 1, "draining")
    look(routed)
    monkeypatch.setattr(routed.router.members.all[1], "redis", unreachable())
    assert routed.post("/tasks/outbox", {"rows": [row]}).status_code == 503
    assert tasks(routed) == [0, 1, 0]


def test_a_schedule_that_a_draining_partition_away_may_have_is_not_created_again(
    routed: Routed, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = next(name for name in map(str, range(99)) if preferred(name, range(3))[:2] == [1, 2])
    other = next(name for name in map(str, range(99)) if preferred(name, range(3))[:2] == [2, 1])
    put = {"type": "process", "interval": 60}
    assert routed.http.put(f"/schedules/{name}", json=put).status_code == 201
    set_states(routed, 1, "draining")
    look(routed)
    monkeypatch.setattr(routed.router.members.all[1], "redis", unreachable())
    for _ in range(2):  # before the gateway has noticed that it is away, and after that
        answer: Any = routed.http.put(f"/schedules/{name}", json={**put, "interval": 30})
        assert (answer.status_code, answer.json["type"]) == (503, "/problems/store-unavailable")
        assert answer.json["unchanged"] is True
    assert routed.http.put(f"/schedules/{other}", json=put).status_code == 201
    found = [each.redis.exists(each.keys.schedule(name)) for each in routed.scripts.values()]
    assert found == [0, 1, 0]


def test_a_task_with_limits_does_not_go_there_either(routed: Routed) -> None:
    set_states(routed, 1, "draining")
    assert {place(routed.submit(fair_key="a", limit_key="b")) for _ in range(20)} == {0, 2}
    key = idempotency_key_at(1)
    _, first = submit_over_http(routed, fair_key="a", idempotency_key=key)
    assert place(first) != 1
    assert submit_over_http(routed, fair_key="a", idempotency_key=key) == (202, first)


def test_schedules_and_running_tasks_of_a_draining_partition_go_on(routed: Routed) -> None:
    clock = FakeClock(routed.scripts[1].now_us())
    redis = routed.scripts[1].redis
    scripts = Scripts(redis, clock)
    store = Store(redis, clock, scripts, Queues(scripts, WEIGHTS), Records(scripts, list(WEIGHTS)))
    [parent] = store.submit()
    schedules = ScheduleStore(scripts)
    schedules.put(Schedule(name="often", type="noop", data="null", queue="high", interval=60))
    set_states(routed, 1, "draining")
    assert store.claim() == [parent]
    child = submit_arguments(NewTask(id=new_task_id(), type="noop", data="null", queue="normal"))
    steps = (parent, "t1", "g", '{"kind":"result"}', 100, 10_000, "", 0, "", "g", "0")
    assert scripts.call("children_start", *steps, *child)[0] == b"stored"
    clock.advance(timedelta(seconds=61))
    fired = Fired()
    schedules.fire_due(NO_LOCK, timedelta(hours=1), fired)
    assert fired.tasks == 1
    assert redis.zcard(scripts.keys.TASKS) == 3


@pytest.mark.parametrize("confirmed", [True, False])
def test_states_are_confirmed_where_writes_are(
    routed: Routed, monkeypatch: pytest.MonkeyPatch, confirmed: bool
) -> None:
    """A kill -9 of Redis must not undo that a partition is draining: tasks are stored elsewhere in reliance on that."""
    called, call = set[str](), Scripts.call

    def noting(scripts: Scripts, name: str, *arguments: Any) -> Any:
        called.add(name)
        return call(scripts, name, *arguments)

    monkeypatch.setattr(Scripts, "call", noting)
    settings = Settings.model_validate({**routed.settings.model_dump(), "confirm_writes": confirmed})
    command = _Command(settings, Output(io.StringIO(), as_json=False))
    assert command.run("drain", 1, False) == command.run("activate", 1, False) == 0
    assert called == {"draining_set+" if confirmed else "draining_set"}


# --- names ---


def submit_over_http(routed: Routed, **about: Any) -> tuple[int, str]:
    """The status, and the task that holds the name now."""
    headers = {"Idempotency-Key": about.pop("idempotency_key")} if "idempotency_key" in about else {}
    answer = routed.http.post("/tasks", json={**BODY, **about}, headers=headers)
    found: dict[str, Any] = answer.json or {}
    return answer.status_code, found.get("existing_task") or found.get("task_id") or str(found)


def submit_directly(routed: Routed, **about: Any) -> tuple[int, str]:
    with queue_of(routed) as queue:
        try:
            return 202, queue.submit("process", 1, **about).task_id
        except Problem as problem:
            return problem.status, str(problem.document.get("existing_task"))


def submit_in_a_list(routed: Routed, **about: Any) -> tuple[int, str]:
    with queue_of(routed) as queue:
        [_, found] = queue.submit_many([new_task("process", 0), new_task("process", 1, **about)])
    if isinstance(found, Problem):
        return found.status, str(found.document.get("existing_task"))
    return 202, found.task_id


WAYS = (submit_over_http, submit_directly, submit_in_a_list)
Way = Callable[..., tuple[int, str]]


@pytest.mark.parametrize("way", WAYS)
def test_a_unique_key_held_in_a_draining_partition_stays_there(routed: Routed, way: Way) -> None:
    key = key_at_home(1, 2)
    _, first = way(routed, unique_key=key)
    set_states(routed, 1, "draining")
    for _ in range(2):
        assert way(routed, unique_key=key) == (409, first)
        look(routed)
    routed.http.delete(f"/tasks/{first}")
    status, second = way(routed, unique_key=key)
    assert (status, place(second)) == (202, 2), "the next one that it prefers"
    assert way(routed, unique_key=key) == (409, second)


@pytest.mark.parametrize("way", WAYS[:2])
def test_an_idempotency_key_is_recognized_while_a_partition_is_drained(routed: Routed, way: Way) -> None:
    key = idempotency_key_at(1)
    _, first = way(routed, idempotency_key=key)
    set_states(routed, 1, "draining")
    assert way(routed, idempotency_key=key) == (202, first)
    other = next(each for each in map(str, range(1000, 2000)) if preferred(f"key {each}", range(3))[0] == 1)
    _, elsewhere = way(routed, idempotency_key=other)
    assert place(elsewhere) != 1
    assert way(routed, idempotency_key=other) == (202, elsewhere)
    set_states(routed, 1, "active")
    assert way(routed, idempotency_key=key) == (202, first)


def test_a_batch_with_a_key_is_recognized_too(routed: Routed) -> None:
    key = idempotency_key_at(1)
    set_states(routed, 1, "draining")
    batch = routed.post("/tasks/batch", {"tasks": [BODY]}, Idempotency_Key=key).json["batch_id"]
    assert place(batch) != 1
    again = routed.post("/tasks/batch", {"tasks": [BODY]}, Idempotency_Key=key)
    assert (again.json["batch_id"], again.headers["Idempotency-Replayed"]) == (batch, "true")
    assert sum(tasks(routed)) == 1


def test_both_names_of_a_task_are_found(routed: Routed) -> None:
    key = key_at_home(1, 2)
    set_states(routed, 1, "draining")
    first = submit_over_http(routed, unique_key=key)[1]
    for _ in range(2):
        assert submit_over_http(routed, unique_key=key, idempotency_key="new") == (409, first)


def test_the_unique_key_of_a_row_is_unique_over_all_partitions(routed: Routed) -> None:
    for home in range(3):
        key = key_at_home(home)
        first = {"task_id": row_at(0), **BODY, "unique_key": key}
        assert send_rows(routed, first)[0] == 202
        assert submit_over_http(routed, unique_key=key) == (409, first["task_id"])
        for other in range(3):
            _, [item] = send_rows(routed, {**first, "task_id": row_at(other)})
            assert item["problem"]["existing_task"] == first["task_id"]
    assert tasks(routed) == [1, 1, 1]


def test_a_row_with_a_unique_key_that_was_stored_elsewhere_stays_there(routed: Routed) -> None:
    """Earlier versions placed each row by its id."""
    row = {"task_id": row_at(0), **BODY, "unique_key": key_at_home(1)}
    there = Client(routed.router.members.all[0].app).post("/tasks/outbox", json={"rows": [row], "settled": []})
    assert there.status_code == 202
    assert send_rows(routed, row)[0] == 202
    set_states(routed, 0, "draining")
    other = {"task_id": row_at(0), **BODY, "unique_key": key_at_home(1, 2)}
    assert send_rows(routed, row, other)[0] == 202
    assert tasks(routed) == [1, 1, 0]


def test_asyncio_follows_the_same_rules(routed: Routed) -> None:
    key = key_at_home(1, 2)
    set_states(routed, 1, "draining")

    async def submit() -> None:
        given = routed.settings.model_dump(include={"redis_url", "redis_partitions"})
        async with AsyncQueue(**given) as queue:
            held = await queue.submit("process", 1, unique_key=key)
            assert place(held.task_id) == 2
            free = await asyncio.gather(*(queue.submit("process", number) for number in range(20)))
            many = await queue.submit_many(new_task("process", number) for number in range(20))
            assert {place(each.task_id) for each in (*free, *many)} <= {0, 2}  # type: ignore[union-attr]
            with pytest.raises(Problem) as refused:
                await queue.submit("process", 1, unique_key=key)
            assert refused.value.document["existing_task"] == held.task_id

    asyncio.run(submit())


def test_an_old_server_without_a_state_is_active(routed: Routed) -> None:
    scripts: Scripts = routed.scripts[0]
    assert not set_state(scripts.redis, "active")
    assert set_state(scripts.redis, "draining")
    assert scripts.redis.exists(scripts.keys.DRAINING)
    assert not set_state(scripts.redis, "draining")
    assert set_state(scripts.redis, "active")
    assert not scripts.redis.exists(scripts.keys.DRAINING)


def test_a_relay_without_rows_reports_to_the_first_partition(routed: Routed) -> None:
    assert send_rows(routed) == (202, [])
    assert [Presence(each).silences().keys() for each in routed.scripts.values()] == [{"relay"}, set(), set()]
