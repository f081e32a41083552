"""Submitting many tasks at once, and what is known of them as a batch."""

from __future__ import annotations

from typing import Any

import pytest

from firmq.shared.domain.task import TaskState
from firmq.shared.stores import maintenance
from firmq.shared.stores.task_types import TaskType, TaskTypes
from firmq.shared.stores.tasks import Records
from tests.integration.gateway.conftest import MakeGateway
from tests.integration.gateway.driving import QUEUES, Gateway, problem
from tests.support.keys import keys


def submit(gateway: Gateway, tasks: Any, **terms: Any) -> Any:
    return gateway.http.post("/tasks/batch", json={"tasks": tasks, **terms})


def task(data: Any = 1, **more: Any) -> dict[str, Any]:
    return {"type": "process", "data": data, **more}


def create(gateway: Gateway, key: str = "", **body: Any) -> Any:
    """The answer to a new batch that stays open."""
    return gateway.http.post("/batches", json=body, headers=keyed(key))


def add(gateway: Gateway, batch: str, tasks: Any, key: str = "", **more: Any) -> Any:
    return gateway.http.post(f"/batches/{batch}/tasks", json={"tasks": tasks, **more}, headers=keyed(key))


def keyed(key: str) -> dict[str, str]:
    return {"Idempotency-Key": key} if key else {}


def pending(gateway: Gateway) -> int:
    return Records(gateway.scripts, QUEUES).counts()[TaskState.PENDING]


def counts(gateway: Gateway, batch_id: str) -> dict[str, int]:
    shown = gateway.http.get(f"/batches/{batch_id}").json
    assert shown
    return {state: count for state, count in shown["counts"].items() if count}


def test_a_batch_that_finds_a_full_queue_says_when_to_try_again(make_gateway: MakeGateway) -> None:
    gateway = make_gateway(max_queue_length=1)
    for accepted in (1, 0):
        answer = gateway.http.post("/tasks/batch", json={"tasks": [{"type": "process", "data": 1}] * 2})
        assert (answer.status_code, answer.get_json()["accepted"]) == (207, accepted)
        assert int(answer.headers["Retry-After"]) >= 1
    wrong = gateway.http.post("/tasks/batch", json={"tasks": [{"type": "nobody", "data": 1}]})
    assert wrong.status_code == 207
    assert "Retry-After" not in wrong.headers


def test_every_task_of_a_batch_is_stored_and_answered_in_its_place(gateway: Gateway) -> None:
    answer = submit(gateway, [task(f"text {n}") for n in range(1200)])
    assert answer.status_code == 202
    assert (answer.json["accepted"], answer.json["refused"]) == (1200, 0)
    for n in (0, 499, 500, 1199):
        assert gateway.show(answer.json["items"][n]["task_id"])["data"] == f"text {n}"
    assert Records(gateway.scripts, QUEUES).counts()[TaskState.PENDING] == 1200


def test_a_wrong_task_is_refused_by_itself_and_says_why(gateway: Gateway) -> None:
    wrong = [task("late", delay=-1), {"type": "nonsense", "data": 1}, "no object"]
    answer = submit(gateway, [task("good"), *wrong, task("good too", priority="high")])
    assert answer.status_code == 207
    assert (answer.json["accepted"], answer.json["refused"]) == (2, 3)
    first, late, unknown, text, last = answer.json["items"]
    assert first["status"] == last["status"] == "pending"
    assert late["problem"]["errors"][0]["field"] == "delay"
    assert unknown["problem"]["type"] == "/problems/unknown-task-type"
    assert "JSON object" in text["problem"]["detail"]
    assert Records(gateway.scripts, QUEUES).counts()[TaskState.PENDING] == 2


def test_unknown_types_cost_a_batch_one_lookup(gateway: Gateway) -> None:
    TaskTypes(gateway.redis).publish([TaskType(name=f"type-{n:03}", schema={}) for n in range(300)])
    before = looks(gateway)
    said = submit(gateway, [{"type": "nonsense", "data": n} for n in range(1000)]).json["items"]
    assert looks(gateway) - before < 20
    assert len(said) == 1000
    first = ["calculate", "process", "resize", *(f"type-{n:03}" for n in range(17))]
    assert all(each["problem"]["known_types"] == first for each in said)


def looks(gateway: Gateway) -> int:
    """How often all of a hash was read."""
    return int(gateway.redis.info("commandstats").get("cmdstat_hgetall", {}).get("calls", 0))


def test_a_batch_finds_a_type_that_was_published_a_moment_before_it(gateway: Gateway) -> None:
    new = {"type": "brand-new", "data": 1}
    assert submit(gateway, [new]).json["refused"] == 1
    TaskTypes(gateway.redis).publish([TaskType(name="brand-new", schema={})])
    assert submit(gateway, [{"type": "nonsense", "data": 1}, new]).json["accepted"] == 1


def test_a_batch_is_bounded(gateway: Gateway) -> None:
    assert submit(gateway, []).status_code == 422
    assert submit(gateway, [0] * 10_001).status_code == 422
    batch = create(gateway).json["batch_id"]
    assert add(gateway, batch, []).status_code == 422
    assert add(gateway, batch, [0] * 10_001).status_code == 422
    assert create(gateway, tasks=[0] * 10_001).status_code == 422


@pytest.mark.parametrize("key", [keys.tasks_with_tag("bad"), keys.scheduled("normal"), keys.TASKS])
def test_a_batch_that_meets_a_damaged_key_counts_all_its_tasks(gateway: Gateway, key: str) -> None:
    gateway.redis.set(key, "a string")
    tasks = [task(), task(), task(tags=["bad"], delay=60), task(), task()]
    answer = submit(gateway, tasks, then=task(priority="low")).json
    assert (answer["accepted"], answer["refused"]) == (5, 0)
    assert counts(gateway, answer["batch_id"]) == {"pending": 4, "scheduled": 1}
    for each in gateway.start():
        gateway.complete(each)
    assert counts(gateway, answer["batch_id"]) == {"completed": 4, "scheduled": 1}
    shown = gateway.http.get(f"/batches/{answer['batch_id']}").json
    assert shown
    assert (shown["status"], shown["total"], shown["ended"]) == ("running", 5, 4)


# --- what is known of it ---


def test_a_batch_counts_its_tasks_as_they_move(gateway: Gateway) -> None:
    answer = submit(gateway, [task(), task(), task(), task(delay=60)], name="import of monday").json
    batch = answer["batch_id"]
    assert counts(gateway, batch) == {"pending": 3, "scheduled": 1}
    one, two, three, _ = [each["task_id"] for each in answer["items"]]
    gateway.start()
    assert counts(gateway, batch) == {"running": 3, "scheduled": 1}
    gateway.complete(one)
    gateway._report(two, "failed", error={"type": "E", "message": "m"})
    gateway.retry_later(three)
    assert counts(gateway, batch) == {"completed": 1, "failed": 1, "retrying": 1, "scheduled": 1}
    shown = gateway.http.get(f"/batches/{batch}").json
    assert shown
    assert (shown["name"], shown["status"], shown["total"], shown["ended"]) == ("import of monday", "running", 4, 2)
    assert shown["progress"] == 0.5
    assert gateway.http.get("/batches").json["items"] == [shown]  # type: ignore[index]  # it has a body
    gateway.http.post(f"/dlq/failed-tasks/{two}/retry")
    assert counts(gateway, batch)["pending"] == 1


def test_the_tasks_of_a_batch_are_listed_in_their_order(gateway: Gateway) -> None:
    answer = submit(gateway, [task(n, delay=60 if n % 2 else 0) for n in range(250)]).json
    listed: list[Any] = []
    cursor = ""
    while True:
        page = gateway.http.get(f"/batches/{answer['batch_id']}/tasks?limit=100{cursor}").json
        assert page
        listed += page["items"]
        if page["next_cursor"] is None:
            break
        cursor = f"&cursor={page['next_cursor']}"
    assert [each["task_id"] for each in listed] == [each["task_id"] for each in answer["items"]]
    assert [each["index"] for each in listed] == list(range(250))
    page = gateway.http.get(f"/batches/{answer['batch_id']}/tasks?status=scheduled&limit=100").json
    assert page
    assert [each["index"] for each in page["items"]] == list(range(1, 200, 2))
    problem(gateway.http.get(f"/batches/{answer['batch_id']}/tasks?cursor=x"), 422, "invalid-request")
    problem(gateway.http.get("/batches/nobody/tasks"), 404, "not-found")


def test_batches_are_listed_newest_first_page_by_page(gateway: Gateway) -> None:
    sent = [submit(gateway, [task()]).json["batch_id"] for _ in range(5)]
    first = gateway.http.get("/batches?limit=3").json
    assert first
    rest = gateway.http.get(f"/batches?limit=3&cursor={first['next_cursor']}").json
    assert rest
    assert [each["batch_id"] for each in first["items"] + rest["items"]] == sent[::-1]
    assert rest["next_cursor"] is None


def test_no_more_than_max_running_are_let_into_the_queue(gateway: Gateway) -> None:
    answer = submit(gateway, [task() for _ in range(5)], max_running=2).json
    batch = answer["batch_id"]
    assert [each["status"] for each in answer["items"]] == ["pending"] * 2 + ["blocked"] * 3
    first, second = gateway.start()
    gateway.complete(first)
    assert counts(gateway, batch) == {"completed": 1, "running": 1, "pending": 1, "blocked": 2}
    gateway.retry_later(second)
    assert counts(gateway, batch) == {"completed": 1, "retrying": 1, "pending": 2, "blocked": 1}
    gateway.make_due(second)
    assert counts(gateway, batch) == {"completed": 1, "pending": 2, "blocked": 2}, "its turn comes again"
    assert gateway.redis.zrange(keys.batch_wait_queue(batch), 0, 0) == [second.encode()], "before the others"


def test_at_the_nth_failure_the_rest_is_cancelled(gateway: Gateway) -> None:
    answer = submit(gateway, [task(delay=60 if n > 7 else 0) for n in range(10)], stop_on_error=2).json
    batch = answer["batch_id"]
    started = gateway.start()
    error = {"type": "E", "message": "m"}
    gateway._report(started[0], "failed", error=error)
    assert counts(gateway, batch) == {"failed": 1, "running": 7, "scheduled": 2}
    gateway._report(started[1], "failed", error=error)
    maintenance.run_deferred(gateway.scripts, 100)
    assert counts(gateway, batch) == {"failed": 2, "running": 6, "cancelled": 2}, "what runs goes on"
    shown = gateway.http.get(f"/batches/{batch}").json
    assert shown
    assert shown["stopped"] == "2 of its tasks failed"
    [cancelled, *_] = gateway.http.get(f"/batches/{batch}/tasks?status=cancelled").json["items"]  # type: ignore[index]
    assert gateway.show(cancelled["task_id"])["cancel_reason"] == "2 of its tasks failed"


def test_a_stopped_batch_starts_nothing_more_even_before_it_is_cleared(gateway: Gateway) -> None:
    answer = submit(gateway, [task() for _ in range(700)], stop_on_error=1).json
    gateway.fail(answer["items"][0]["task_id"])
    assert gateway.start() == []


def test_a_dead_letter_of_a_stopped_batch_goes_back_with_the_batch_and_not_alone(gateway: Gateway) -> None:
    answer = submit(gateway, [task(), task(delay=60)], stop_on_error=1).json
    batch, dead = answer["batch_id"], answer["items"][0]["task_id"]
    gateway.fail(dead)
    refused = problem(gateway.http.post(f"/dlq/failed-tasks/{dead}/retry"), 409, "batch-stopped")
    assert f"POST /batches/{batch}/retry" in refused["detail"]
    assert refused["task_status"] == "failed"
    assert gateway.start() == []
    letters = gateway.http.get("/dlq/failed-tasks").get_json()["items"]
    assert [each["task_id"] for each in letters] == [dead]
    assert gateway.http.post(f"/batches/{batch}/retry").status_code == 202
    maintenance.run_deferred(gateway.scripts, 100)
    assert gateway.start() == [dead]


def test_a_batch_can_be_cancelled_and_its_failures_retried(gateway: Gateway) -> None:
    answer = submit(gateway, [task() for _ in range(4)]).json
    batch = answer["batch_id"]
    gateway.fail(answer["items"][0]["task_id"])
    cancelled = gateway.http.delete(f"/batches/{batch}?reason=wrong+file")
    assert (cancelled.status_code, cancelled.json["work"]) == (202, "cancel")  # type: ignore[index]  # it has a body
    problem(gateway.http.delete(f"/batches/{batch}"), 409, "batch-busy")
    maintenance.run_deferred(gateway.scripts, 100)
    assert gateway.show(answer["items"][1]["task_id"])["cancel_reason"] == "wrong file"
    assert counts(gateway, batch) == {"failed": 1, "running": 3}, "those that run were asked to stop"
    assert gateway.http.post(f"/batches/{batch}/retry").status_code == 202
    maintenance.run_deferred(gateway.scripts, 100)
    assert counts(gateway, batch) == {"pending": 1, "running": 3}
    problem(gateway.http.delete("/batches/nobody"), 404, "not-found")


def test_a_task_follows_when_all_have_ended(gateway: Gateway) -> None:
    answer = submit(gateway, [task(), task()], then=task("all done", priority="high")).json
    then = gateway.http.get(f"/batches/{answer['batch_id']}").json["then"]  # type: ignore[index]  # it has a body
    assert gateway.show(then)["status"] == "blocked"
    one, two = gateway.start()
    gateway.complete(one)
    assert gateway.show(then)["status"] == "blocked"
    gateway._report(two, "failed", error={"type": "E", "message": "m"})
    assert gateway.show(then)["status"] == "pending"
    shown = gateway.http.get(f"/batches/{answer['batch_id']}").json
    assert shown
    assert (shown["status"], shown["total"]) == ("ended", 2)
    assert shown["ended_at"]


@pytest.mark.parametrize(
    ("terms", "field"),
    [
        ({"name": "x" * 201}, "name"),
        ({"max_running": 0}, "max_running"),
        ({"stop_on_error": "1"}, "stop_on_error"),
        ({"then": {"type": "process"}}, "then.data"),
        ({"then": {"type": "resize", "data": {}}}, "then.data"),
        ({"then": {"type": "process", "data": 1, "depends_on": []}}, "then"),
        ({"then": {"type": "process", "data": 1, "unique_key": "u", "on_conflict": "existing"}}, "then"),
        ({"what": 1}, "what"),
    ],
)
def test_terms_that_cannot_be_refuse_the_whole_batch(gateway: Gateway, terms: Any, field: str) -> None:
    body = problem(submit(gateway, [task()], **terms), 422, "invalid-request")
    assert body["errors"][0]["field"] == field
    assert Records(gateway.scripts, QUEUES).counts()[TaskState.PENDING] == 0


# --- tasks of a batch that depend on each other ---


def test_tasks_of_a_batch_wait_for_each_other_by_place_or_name_in_any_order(gateway: Gateway) -> None:
    tasks = [
        task("report", depends_on=[{"item": "left"}, 2]),
        task("left", item="left", depends_on=[{"item": "top"}]),
        task("right", depends_on=[{"item": "top", "on": "end"}]),
        task("top", item="top"),
    ]
    answer = submit(gateway, tasks)
    assert answer.status_code == 202
    assert [each["status"] for each in answer.json["items"]] == ["blocked", "blocked", "blocked", "pending"]
    report, left, right, top = [each["task_id"] for each in answer.json["items"]]
    assert [each["task_id"] for each in gateway.show(report)["depends_on"]] == [left, right]
    assert gateway.show(right)["depends_on"] == [{"task_id": top, "on": "end"}]


def test_circles_and_what_hangs_on_them_are_refused_and_the_rest_is_not(gateway: Gateway) -> None:
    tasks = [
        task(depends_on=[1]),
        task(depends_on=[0]),
        task(depends_on=[2]),
        task(depends_on=[1]),
        task(),
        task(depends_on=[4]),
        task(depends_on=[99]),
        task(depends_on=[{"item": "nobody"}]),
        task(depends_on=[6]),
    ]
    answer = submit(gateway, tasks)
    assert answer.status_code == 207
    details = [each.get("problem", {}).get("detail") for each in answer.json["items"]]
    assert details == [
        "depends_on: is a circular dependency: 0 → 1 → 0",
        "depends_on: is a circular dependency: 1 → 0 → 1",
        "depends_on: is a circular dependency: 2 → 2",
        "depends_on: names a task of this batch that was refused, or depends on one that was",
        None,
        None,
        "depends_on[0].item: is not an index of this batch: it has 9 tasks, counted from 0",
        "depends_on[0].item: is not the name of a task of this batch",
        "depends_on: names a task of this batch that was refused, or depends on one that was",
    ]


def test_a_long_circle_is_shown_in_short(gateway: Gateway) -> None:
    answer = submit(gateway, [task(depends_on=[(n + 1) % 500]) for n in range(500)])
    assert (answer.json["accepted"], answer.json["refused"]) == (0, 500)
    shown = answer.json["items"][495]["problem"]["detail"]
    assert shown == "depends_on: is a circular dependency: 495 → 496 → 497 → 498 → 499 → 0 → 1 → 2 → 3 → 4 → … → 495"


@pytest.mark.parametrize("path", ["/tasks/batch", "/batches", "/batches/{}/tasks"])
def test_a_request_with_too_many_dependencies_is_refused_as_a_whole(gateway: Gateway, path: str) -> None:
    batch = create(gateway).json["batch_id"]
    tasks = [task(depends_on=list(range(min(at, 25)))) for at in range(1014)]
    answer: Any = gateway.http.post(path.format(batch), json={"tasks": tasks})
    assert answer.status_code == 422
    assert answer.json["detail"].startswith("tasks: have 25,025 dependencies; a request may have 25,000: send fewer")
    assert (pending(gateway), counts(gateway, batch)) == (0, {})
    assert add(gateway, batch, tasks[:9]).json["accepted"] == 9


def test_two_tasks_of_one_name_are_one_too_many(gateway: Gateway) -> None:
    answer = submit(gateway, [task(item="a"), task(item="a")])
    assert answer.json["items"][1]["problem"]["detail"] == "item: is already the name of task 0"


# --- in several requests ---


def test_a_batch_receives_tasks_until_it_is_closed(gateway: Gateway) -> None:
    first = create(gateway, name="from a file", max_running=1, tasks=[task("one")])
    assert (first.status_code, first.json["accepted"]) == (202, 1)
    batch = first.json["batch_id"]
    more = add(gateway, batch, [{"type": "nonsense", "data": 1}, task("two")])
    assert (more.status_code, more.json["batch_id"], more.json["accepted"], more.json["refused"]) == (207, batch, 1, 1)
    wrong, two = more.json["items"]
    assert (wrong["index"], wrong["problem"]["type"]) == (1, "/problems/unknown-task-type")
    assert (two["index"], two["status"]) == (2, "blocked")
    assert gateway.show(two["task_id"])["batch_index"] == 2
    shown = gateway.http.get(f"/batches/{batch}").get_json()
    assert (shown["name"], shown["max_running"], shown["total"]) == ("from a file", 1, 2)
    assert shown["status"] == "receiving"
    closed = gateway.http.post(f"/batches/{batch}/close")
    assert (closed.status_code, closed.get_json()["status"]) == (200, "running")
    assert gateway.http.post(f"/batches/{batch}/close").get_json() == closed.get_json()
    [late] = add(gateway, batch, [task("three")]).json["items"]
    assert late["problem"]["type"] == "/problems/batch-stopped"


def test_an_unknown_batch_receives_nothing(gateway: Gateway) -> None:
    problem(add(gateway, "nobody", [task()]), 404, "not-found")
    problem(add(gateway, "nobody", [task()], key="k"), 404, "not-found")
    problem(gateway.http.post("/batches/nobody/close"), 404, "not-found")
    batch = create(gateway).json["batch_id"]
    assert add(gateway, batch, [task()], key="k").status_code == 202, "the key was not used up"


def test_requests_without_a_start_follow_each_other(gateway: Gateway) -> None:
    batch = create(gateway, tasks=[task(0), task(1)]).json["batch_id"]
    indexes = [each["index"] for n in range(3) for each in add(gateway, batch, [task(n), task(n)]).json["items"]]
    assert indexes == [2, 3, 4, 5, 6, 7]
    assert add(gateway, batch, [task("at a place")], start=20).json["items"][0]["index"] == 20
    assert add(gateway, batch, [task("behind it")]).json["items"][0]["index"] == 21


def test_tasks_may_depend_on_tasks_of_earlier_requests(gateway: Gateway) -> None:
    batch = create(gateway, tasks=[task(item="first"), task()]).json["batch_id"]
    answer = add(
        gateway,
        batch,
        [
            task(depends_on=[{"item": "first"}]),
            task(depends_on=[1]),
            task(depends_on=[2]),
            task(depends_on=[9]),
            task(depends_on=[{"item": "nobody"}]),
            task(depends_on=[5]),
            task(depends_on=[7]),
        ],
        start=2,
    )
    items = answer.json["items"]
    assert [each.get("status") for each in items] == ["blocked", "blocked", "blocked", None, None, None, None]
    assert "is not an index of this batch: it has 9 tasks" in items[3]["problem"]["detail"]
    assert items[4]["problem"]["type"] == "/problems/missing-parent"
    assert "names a task of this batch that was refused" in items[5]["problem"]["detail"]


def test_circles_of_a_later_request_are_shown_by_index(gateway: Gateway) -> None:
    batch = create(gateway, tasks=[task()]).json["batch_id"]
    items = add(gateway, batch, [task(depends_on=[2]), task(depends_on=[1])], start=1).json["items"]
    assert items[0]["problem"]["detail"] == "depends_on: is a circular dependency: 1 → 2 → 1"


def test_a_batch_sent_again_by_its_indexes_adds_nothing_twice(gateway: Gateway) -> None:
    tasks = [task(n) for n in range(1500)]
    batch = create(gateway, key="import-7").json["batch_id"]
    first = add(gateway, batch, tasks[:700], start=0).json
    assert gateway.http.post(f"/batches/{batch}/close").status_code == 200
    assert create(gateway, key="import-7").json["batch_id"] == batch, "it is opened again"
    again = add(gateway, batch, tasks, start=0).json
    assert again["items"][:700] == first["items"]
    assert (again["accepted"], again["refused"]) == (1500, 0)
    assert add(gateway, batch, tasks[1000:], start=1000).json["items"] == again["items"][1000:]
    assert counts(gateway, batch) == {"pending": 1500}
    assert pending(gateway) == 1500


def test_a_request_sent_again_with_its_key_gets_the_same_answer(gateway: Gateway) -> None:
    tasks = [task("one"), task("two", item="two")]
    first, again = (create(gateway, key="new", name="n", tasks=tasks) for _ in range(2))
    assert again.headers["Idempotency-Replayed"] == "true"
    assert again.json == first.json
    batch = first.json["batch_id"]
    more, replayed = (add(gateway, batch, [task("three"), {}], key="more") for _ in range(2))
    assert replayed.headers["Idempotency-Replayed"] == "true"
    assert replayed.json == more.json
    assert [each["index"] for each in more.json["items"]] == [2, 3]
    assert add(gateway, batch, [task("four")]).json["items"][0]["index"] == 4
    assert pending(gateway) == 4
    problem(add(gateway, batch, [task("five")], key="more"), 422, "idempotency-key-reused")
    problem(create(gateway, key="new", name="another"), 422, "idempotency-key-reused")
    other = create(gateway).json["batch_id"]
    problem(add(gateway, other, [task("three"), {}], key="more"), 422, "idempotency-key-reused")


def test_what_a_full_queue_refused_is_taken_at_the_same_index_when_it_is_sent_again(make_gateway: MakeGateway) -> None:
    gateway = make_gateway(max_queue_length=2)
    batch = create(gateway).json["batch_id"]
    first = add(gateway, batch, [task(n) for n in range(3)], key="k")
    assert (first.status_code, first.json["accepted"], first.headers["Retry-After"]) == (207, 2, "1")
    assert first.json["items"][2]["problem"]["type"] == "/problems/queue-full"
    add(gateway, batch, [{}])
    for each in gateway.start():
        gateway.complete(each)
    again = add(gateway, batch, [task(n) for n in range(3)], key="k")
    assert (again.status_code, again.json["accepted"]) == (202, 3)
    assert [each["index"] for each in again.json["items"]] == [0, 1, 2]
    assert [each["task_id"] for each in again.json["items"][:2]] == [
        each["task_id"] for each in first.json["items"][:2]
    ]
    assert counts(gateway, batch) == {"completed": 2, "pending": 1}


def test_another_task_at_the_same_index_is_refused(gateway: Gateway) -> None:
    batch = create(gateway, tasks=[task("one"), task("two")]).json["batch_id"]
    one, two = add(gateway, batch, [task("one"), task("other")], start=0).json["items"]
    assert one["status"] == "pending"
    assert two["problem"]["type"] == "/problems/place-is-taken"


@pytest.mark.parametrize("first", [True, False])
def test_a_key_is_for_one_path(gateway: Gateway, first: bool) -> None:
    def send(whole: bool) -> Any:
        path = "/tasks/batch" if whole else "/batches"
        return gateway.http.post(path, json={"tasks": [task("one"), task("two")]}, headers=keyed("k"))

    assert send(first).status_code == 202
    problem(send(not first), 422, "idempotency-key-reused")
    problem(gateway.http.post("/tasks", json=task(), headers=keyed("k")), 422, "idempotency-key-reused")
    assert send(first).status_code == 202
    assert pending(gateway) == 2


def test_a_batch_that_was_refused_as_a_whole_leaves_its_key_free(gateway: Gateway) -> None:
    problem(create(gateway, key="k", then=task(unique_key="u", depends_on=[])), 422, "invalid-request")
    problem(create(gateway, key="k", then={"type": "nonsense", "data": 1}), 422, "unknown-task-type")
    assert gateway.http.post("/tasks", json=task(), headers=keyed("k")).status_code == 202


def test_what_has_ended_and_gone_is_not_run_again(gateway: Gateway) -> None:
    answer = create(gateway, tasks=[task("one")]).json
    [one] = answer["items"]
    gateway.start()
    gateway.complete(one["task_id"])
    maintenance.prune(gateway.scripts, "completed", 0, 10)
    again = add(gateway, answer["batch_id"], [task("one")], start=0).json
    assert again["items"] == [{"index": 0, "task_id": one["task_id"], "status": None}]
    assert again["accepted"] == 1


def test_a_cancelled_batch_takes_no_more(gateway: Gateway) -> None:
    batch = create(gateway, tasks=[task("one")]).json["batch_id"]
    gateway.http.delete(f"/batches/{batch}")
    one, two = add(gateway, batch, [task("one"), task("two")], start=0).json["items"]
    assert one["task_id"]
    assert two["problem"]["type"] == "/problems/batch-stopped"


@pytest.mark.parametrize("body", [{"max_running": 0}, {"tasks": {}}, {"what": 1}])
def test_a_batch_that_cannot_begin_is_refused_as_a_whole(gateway: Gateway, body: Any) -> None:
    problem(create(gateway, **body), 422, "invalid-request")
    assert gateway.http.get("/batches").get_json()["items"] == []


# --- its end ---


def test_a_batch_goes_when_its_tasks_have_gone_and_it_is_old(gateway: Gateway) -> None:
    answer = submit(gateway, [task()]).json
    gateway.start()
    gateway.complete(answer["items"][0]["task_id"])
    assert maintenance.batch_prune(gateway.scripts, 0, 0, 10) == 0, "its task is on record"
    maintenance.prune(gateway.scripts, "completed", 0, 10)
    day = 86_400_000_000
    assert maintenance.batch_prune(gateway.scripts, 0, day, 10) == 0, "it is young"
    assert maintenance.batch_prune(gateway.scripts, 0, 0, 10) == 1
    problem(gateway.http.get(f"/batches/{answer['batch_id']}"), 404, "not-found")
    assert not gateway.redis.keys(f"{keys.prefix}firmq:batch*")


def test_a_batch_whose_sender_died_counts_as_sent_after_a_while(gateway: Gateway) -> None:
    batch = create(gateway, then=task("then"), tasks=[task()]).json["batch_id"]
    gateway.redis.zadd(keys.OPEN_BATCHES, {batch: 1})
    for each in gateway.start():
        gateway.complete(each)
    shown = gateway.http.get(f"/batches/{batch}").json
    assert shown
    assert (shown["status"], gateway.show(shown["then"])["status"]) == ("receiving", "blocked")
    maintenance.batch_prune(gateway.scripts, 3_600_000_000, 86_400_000_000, 10)
    assert gateway.show(shown["then"])["status"] == "pending"


def test_a_batch_that_is_opened_again_has_not_ended(gateway: Gateway) -> None:
    batch = create(gateway, "again").json["batch_id"]
    assert gateway.http.post(f"/batches/{batch}/close").get_json()["ended_at"]
    assert create(gateway, "again").json["batch_id"] == batch
    shown = gateway.http.get(f"/batches/{batch}").get_json()
    assert (shown["status"], shown["ended_at"]) == ("receiving", None)
