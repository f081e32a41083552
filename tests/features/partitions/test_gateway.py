"""The gateway of three partitions: where tasks go, and what requests about all of them answer."""

from __future__ import annotations

import base64
import io
import itertools
import json
from collections import Counter
from functools import partial
from typing import Any

import pytest
from redis import Redis
from redis.exceptions import ConnectionError
from werkzeug.test import Client

from firmq.gateway.features.partitions.feature import create_router
from firmq.gateway.features.partitions.members import Member
from firmq.shared.config.settings import Settings
from firmq.shared.domain.store_number import id_suffix, store_of_id
from firmq.shared.domain.task import new_task_id
from firmq.shared.errors import StoreUnavailable
from firmq.shared.features.partitions.merged_pages import write_cursor
from firmq.shared.features.partitions.preference import preferred
from firmq.shared.redis.client import connect
from firmq.shared.stores.api_keys import Scope, new_key
from tests.features.partitions.conftest import Routed, databases


def place(task_id: str) -> int:
    return store_of_id(task_id) or 0


# --- where tasks go ---


def test_an_id_names_its_partition_and_leads_there(routed: Routed) -> None:
    ids = [routed.submit_to(number) for number in range(3)]
    assert [place(each) for each in ids] == [0, 1, 2]
    assert len(ids[0]) == 26, "the ids of the first partition are as those of a single server"
    for number, each in enumerate(ids):
        assert routed.scripts[number].redis.exists(routed.scripts[number].keys.rq_job(each))
        assert routed.get(f"/tasks/{each}")["status"] == "pending"
        assert (routed.http.delete(f"/tasks/{each}").json or {})["status"] == "cancelled"


def test_what_nothing_ties_goes_to_the_emptier_one(routed: Routed) -> None:
    members = routed.router.members.all
    members[0].stored, members[1].stored, members[2].stored = 1000, 1000, 10
    counts = Counter(place(routed.submit()) for _ in range(60))
    assert counts[2] > 30
    assert counts.keys() == {0, 1, 2}


def test_a_task_goes_to_the_tasks_that_it_depends_on(routed: Routed) -> None:
    for number in range(3):
        parent = routed.submit_to(number)
        assert place(routed.submit(depends_on=[{"task_id": parent}])) == number


def test_a_task_that_depends_on_one_in_another_partition_is_refused(routed: Routed) -> None:
    parents = [routed.submit_to(number) for number in (1, 2)]
    about = {"type": "process", "data": 1, "depends_on": parents}
    answer = routed.post("/tasks", about)
    assert (answer.status_code, answer.json["type"]) == (422, "/problems/missing-parent")
    assert f"task {parents[1]} does not exist where this task goes" in answer.json["detail"]
    assert "with the same placement_key" in answer.json["detail"]
    held = next(key for key in map(str, range(99)) if preferred(f"unique process {key}", range(3))[0] == 2)
    assert routed.post("/tasks", {**about, "depends_on": parents[:1], "unique_key": held}).status_code == 422


def test_related_tasks_are_placed_together(routed: Routed) -> None:
    for key in "abcdef":
        related = {"placement_key": key}
        parents = [routed.submit(**related, unique_key=f"{key}{at}") for at in range(4)]
        child = routed.submit(**related, depends_on=parents, unique_key=key)
        items = routed.post("/tasks/batch", {"tasks": [{"type": "process", "data": 1, **related}] * 3}).json["items"]
        rows = [{"type": "process", "data": 1, "task_id": new_task_id(), **related} for _ in range(3)]
        sent = routed.post("/tasks/outbox", {"rows": rows, "settled": []}).json["items"]
        home = preferred(f"placement {key}", range(3))[0]
        assert {place(each) for each in (*parents, child, *(each["task_id"] for each in items))} == {home}
        assert all(
            routed.scripts[home].redis.exists(routed.scripts[home].keys.rq_job(each["task_id"])) for each in sent
        )


def test_a_row_goes_to_the_tasks_that_it_depends_on(routed: Routed) -> None:
    parent, first, second = routed.submit_to(1), new_task_id(), new_task_id()
    rows = [{"type": "process", "data": 1, "task_id": first, "depends_on": [parent]}]
    rows.append({"type": "process", "data": 1, "task_id": second, "depends_on": [first]})
    answer = routed.post("/tasks/outbox", {"rows": rows, "settled": []})
    assert (answer.status_code, len(answer.json["items"])) == (202, 2)
    assert routed.get(f"/tasks/{second}")["status"] == "blocked"


def test_a_body_without_a_length_is_passed_on(routed: Routed) -> None:
    answer = routed.http.post(
        "/tasks",
        input_stream=io.BytesIO(b'{"type": "process", "data": 1}'),
        content_type="application/json",
        environ_overrides={"wsgi.input_terminated": True, "CONTENT_LENGTH": ""},
    )
    assert answer.status_code == 202, answer.text


def test_odd_names_are_refused_as_with_one_server(routed: Routed) -> None:
    answer = routed.post("/tasks", {"type": "process", "data": 1, "unique_key": "a\udc80"})
    assert (answer.status_code, "surrogate" in answer.text) == (400, True)


def test_a_key_always_meets_the_same_store(routed: Routed) -> None:
    for key in "abcdefgh":
        first = routed.post("/tasks", {"type": "process", "data": 1}, Idempotency_Key=key)
        again = routed.post("/tasks", {"type": "process", "data": 1}, Idempotency_Key=f'"{key}"')
        assert again.headers["Idempotency-Replayed"] == "true"
        assert again.json["task_id"] == first.json["task_id"]
    for key in "abcdefgh":
        held = routed.submit(unique_key=key)
        answer = routed.post("/tasks", {"type": "process", "data": 1, "unique_key": key})
        assert (answer.status_code, answer.json["existing_task"]) == (409, held)


def test_a_batch_is_in_one_partition(routed: Routed) -> None:
    for key in "abcdef":
        answer = routed.post(
            "/tasks/batch", {"tasks": [{"type": "process", "data": at} for at in range(5)]}, Idempotency_Key=key
        )
        batch = answer.json["batch_id"]
        assert {place(each["task_id"]) for each in answer.json["items"]} == {place(batch)}
        assert routed.get(f"/batches/{batch}")["total"] == 5
        assert len(routed.get(f"/batches/{batch}/tasks")["items"]) == 5
    assert len(routed.get("/batches")["items"]) == 6


def test_a_batch_from_a_filter_says_what_to_name_instead(routed: Routed) -> None:
    body = {"from": {"status": "failed"}, "task": {"type": "process", "data": 1}}
    answer = routed.post("/batches", body)
    assert answer.status_code == 422
    assert "needs `batch_id`" in answer.json["errors"][0]["detail"]


def test_a_row_of_an_outbox_is_stored_once_also_after_a_partition_was_added(routed: Routed) -> None:
    rows = [{"task_id": new_task_id(), "type": "process", "data": at} for at in range(20)]
    body = {"rows": rows, "settled": []}
    first = routed.post("/tasks/outbox", body)
    assert [each["task_id"] for each in first.json["items"]] == [each["task_id"] for each in rows]
    assert [each["index"] for each in first.json["items"]] == list(range(20))
    homes = Counter(
        number
        for each in rows
        for number, scripts in routed.scripts.items()
        if scripts.redis.exists(scripts.keys.rq_job(str(each["task_id"])))
    )
    assert len(homes) == 3
    assert sum(homes.values()) == 20
    # Before the third one was added, all of them were in the first two.
    two = dict(list(routed.router.members.all.items())[:2])
    everyone = routed.router.members.all
    more = [{"task_id": new_task_id(), "type": "process", "data": at} for at in range(20)]
    routed.router.members.all = routed.router.placement.members = two
    routed.post("/tasks/outbox", {"rows": more, "settled": []})
    routed.router.members.all = routed.router.placement.members = everyone
    routed.post("/tasks/outbox", {"rows": more, "settled": []})
    assert len(all_pages(routed, "/tasks")) == 40
    assert routed.get(f"/tasks/{more[0]['task_id']}")["status"] == "pending", "its id names no partition"


def test_ids_of_a_request_are_bounded_before_they_are_looked_up_in_one_round_trip(
    routed: Routed, monkeypatch: pytest.MonkeyPatch
) -> None:
    trips = Counter[int]()

    def counted(member: Member, **options: Any) -> Any:
        trips[member.number] += 1
        return Redis.pipeline(member.redis, **options)

    for member in routed.router.members.all.values():
        monkeypatch.setattr(member.redis, "pipeline", partial(counted, member))
    rows = [{"task_id": new_task_id(), "type": "process", "data": at} for at in range(30)]
    settled = [new_task_id() for _ in range(1000)]
    assert routed.post("/tasks/outbox", {"rows": rows, "settled": settled}).status_code == 202
    assert max(trips.values()) <= 2
    trips.clear()
    for body in (
        {"rows": rows, "settled": [*settled, new_task_id()]},
        {"rows": rows * 40, "settled": []},
        {"rows": rows, "settled": "a" * 100},
        {"rows": rows, "settled": ["a b"]},
    ):
        assert routed.post("/tasks/outbox", body).status_code == 422
    assert not trips, "they are refused first"


def test_a_mistake_is_answered_as_by_a_single_server(routed: Routed) -> None:
    assert routed.http.post("/tasks", data=b"{", content_type="application/json").status_code == 400
    assert routed.http.post("/tasks", data=b"[]", content_type="application/json").status_code == 422
    assert routed.post("/tasks", {"type": "nothing", "data": 1}).status_code == 422
    assert routed.http.get(f"/tasks/{new_task_id()}").status_code == 404
    assert routed.http.get(f"/tasks/{new_task_id(id_suffix(9))}").status_code == 404
    assert routed.http.get("/nowhere").status_code == 404
    assert routed.http.put("/tasks").status_code == 405
    assert routed.http.get("/tasks?limit=0").status_code == 422
    assert routed.http.get("/tasks?cursor=p.x").status_code == 422
    assert routed.http.get("/tasks?cursor=1_a").status_code == 422
    assert routed.http.post("/tasks/outbox", json={"rows": 5}).status_code == 422


# --- lists and counts ---


def all_pages(routed: Routed, path: str, limit: int = 7) -> list[Any]:
    found: list[Any] = []
    cursor = None
    for _ in range(100):
        more = f"{'&' if '?' in path else '?'}limit={limit}" + (f"&cursor={cursor}" if cursor else "")
        page = routed.get(path + more)
        assert len(page["items"]) <= limit
        found += page["items"]
        cursor = page["next_cursor"]
        if not cursor:
            return found
    raise AssertionError("the pages have no end")


@pytest.mark.parametrize("limit", [1, 7, 50])
def test_pages_are_in_order_and_complete(routed: Routed, limit: int) -> None:
    ids = [routed.submit(tags=["odd"] if at % 3 else ["third"]) for at in range(40)]
    found = [each["task_id"] for each in all_pages(routed, "/tasks", limit)]
    assert found == ids[::-1]
    tagged = [each["task_id"] for each in all_pages(routed, "/tasks?tag=third", limit)]
    assert tagged == [ids[at] for at in range(39, -1, -1) if at % 3 == 0]
    assert len(all_pages(routed, "/tasks?status=pending", limit)) == 40


def test_counts_add_up(routed: Routed) -> None:
    for number in range(3):
        for _ in range(number + 1):
            routed.submit_to(number)
    queues = {each["name"]: each for each in routed.get("/queues")["items"]}
    assert queues["normal"]["pending"] == 6
    assert queues["normal"]["weight"] == 3
    assert routed.get("/waiting")["total"] == 6
    assert routed.get("/breakdown")["tasks"] == 6
    assert routed.get("/health")["queues"]["normal"] == 6
    assert [each["name"] for each in routed.get("/types")["items"]] == ["mail", "process"]


def test_a_pause_reaches_all_or_none(routed: Routed) -> None:
    routed.submit()
    assert routed.post("/queues/normal/pause", {"reason": "stop"}).json["paused"]
    assert all(each.redis.exists(each.keys.PAUSED) for each in routed.scripts.values())
    assert not routed.post("/queues/normal/resume").json["paused"]
    routed.router.members.all[1].answers = False
    answer = routed.post("/queues/normal/pause", {"reason": "stop"})
    assert answer.status_code == 503
    assert "partition 1" in answer.json["detail"]
    assert not any(each.redis.exists(each.keys.PAUSED) for each in routed.scripts.values())


def test_a_change_is_audited_once(routed: Routed) -> None:
    routed.submit()
    routed.post("/queues/normal/pause", {"reason": "stop"})
    entries = all_pages(routed, "/audit")
    assert [(each["what"], each["about"]) for each in entries] == [("paused queue", "normal")]
    assert len(routed.http.get("/audit.csv").text.splitlines()) == 2
    assert len(routed.http.get("/audit.jsonl").text.splitlines()) == 1


def test_limits_are_set_in_each_partition(routed: Routed) -> None:
    assert routed.http.put("/limits/types/process", json={"concurrency": 5}).status_code == 201
    assert [each["concurrency"] for each in routed.get("/limits")["items"]] == [5]
    assert routed.get("/limits/types/process")["concurrency"] == 5
    for scripts in routed.scripts.values():
        assert json.loads(scripts.redis.hget(scripts.keys.LIMITS, "type:process") or "")["concurrency"] == 5
    assert routed.http.delete("/limits/types/process").status_code == 200
    assert routed.get("/limits")["items"] == []


def test_a_schedule_is_in_one_partition_and_stays_there(routed: Routed) -> None:
    names = ["a", "b", "c", "d", "e", "f"]
    for name in names:
        assert routed.http.put(f"/schedules/{name}", json={"type": "process", "interval": 60}).status_code == 201
    homes = [
        [number for number, each in routed.scripts.items() if each.redis.exists(each.keys.schedule(name))]
        for name in names
    ]
    assert {len(home) for home in homes} == {1}
    assert len(set(itertools.chain(*homes))) > 1
    assert [each["name"] for each in all_pages(routed, "/schedules", 2)] == names
    for name in names:
        assert routed.http.put(f"/schedules/{name}", json={"type": "process", "interval": 30}).status_code == 200
        ran = routed.post(f"/schedules/{name}/run").json["task_id"]
        assert routed.get(f"/tasks/{ran}")["status"] == "pending"
        assert routed.http.delete(f"/schedules/{name}").status_code == 200
    assert routed.get("/schedules")["items"] == []


def test_every_address_of_the_api_is_answered(routed: Routed) -> None:
    task = routed.submit()
    for path, methods in routed.get("/")["addresses"].items():
        if "GET" not in methods or path.endswith(("/events", "/stream")):
            continue
        answer = routed.http.get(path.format(task_id=task, batch_id="b", action_id="a", name="normal", kind="x"))
        assert answer.status_code in (200, 202, 404), f"{path}: {answer.status_code} {answer.text[:200]}"


@pytest.mark.parametrize("path", ["/tasks", "/queues", "/health", "/limits", "/", "/nowhere"])
def test_a_head_request_is_answered_as_a_get_without_its_body(routed: Routed, path: str) -> None:
    head, get = routed.http.head(path), routed.http.get(path)
    assert (head.status_code, head.data) == (get.status_code, b"")
    assert head.content_type == get.content_type


# --- a partition that is away ---


def test_lists_name_the_partition_that_is_missing(routed: Routed) -> None:
    ids = [routed.submit_to(number) for number in range(3)]
    routed.router.members.all[1].answers = False
    page = routed.get("/tasks")
    assert {each["task_id"] for each in page["items"]} == {ids[0], ids[2]}
    assert (page["unavailable_partitions"], page["next_cursor"]) == ([1], None)
    assert routed.get("/queues")["unavailable_partitions"] == [1]
    assert "unavailable_partitions" not in routed.get(f"/tasks/{ids[0]}")


def test_what_nothing_ties_goes_to_the_others(routed: Routed) -> None:
    routed.router.members.all[1].answers = False
    assert {place(routed.submit()) for _ in range(20)} == {0, 2}


def test_a_store_that_goes_away_while_a_key_is_checked_is_a_503(
    three: Settings, routed: Routed, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*_: object) -> None:
        raise StoreUnavailable("gone")

    monkeypatch.setattr("firmq.gateway.auth.authenticator.Authenticator.authenticate", away)
    routed.router.members.all[1].answers = False
    answer = routed.post("/queues/normal/pause", {"reason": "stop"})
    assert (answer.status_code, answer.json["type"]) == (503, "/problems/store-unavailable")


def test_a_server_at_another_place_is_refused_with_the_remedy(redis_client: Redis, redis_url: str) -> None:
    first, second, third = databases(redis_url)
    for own in Settings.model_validate({"redis_partitions": (first, second, third)}).stores.values():
        with connect(own.store_url) as client:
            client.ping()
    mixed = Settings.model_validate({"redis_partitions": (first, third, second)})
    with connect(mixed.stores[1].store_url) as client, pytest.raises(ConnectionError, match="give each address"):
        client.ping()
    with connect(first) as alone:
        assert alone.ping(), "a system of one server that grew can be read as before"


def test_a_list_whose_rest_is_away_does_not_begin_again(routed: Routed) -> None:
    for number in range(3):
        routed.submit_to(number)
    cursor = write_cursor({0: None, 1: "1_x", 2: None})
    routed.router.members.all[1].answers = False
    answer = routed.http.get(f"/tasks?cursor={cursor}")
    assert (answer.status_code, "partition 1 does not answer" in answer.text) == (503, True)


def test_a_deeply_nested_cursor_is_refused(routed: Routed) -> None:
    cursor = "p." + base64.urlsafe_b64encode(b"[" * 5000).decode()
    for path in ("/tasks", "/batches", "/audit", "/schedules"):
        assert routed.http.get(f"{path}?cursor={cursor}").status_code == 422


def test_without_a_key_nobody_learns_which_partition_is_away(three: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("firmq.gateway.features.partitions.members.Members.watch", lambda members: None)
    key, text = new_key("shop", [Scope.OPERATE])
    settings = Settings.model_validate({**three.model_dump(), "api_keys": [key.line]})
    router = create_router(settings)
    router.members.all[1].answers = False
    http = Client(router)
    assert http.post("/queues/normal/pause", json={"reason": "stop"}).status_code == 401
    headers = {"Authorization": f"Bearer {text}"}
    answer = http.post("/queues/normal/pause", json={"reason": "stop"}, headers=headers)
    assert (answer.status_code, "partition 1" in answer.text) == (503, True)
