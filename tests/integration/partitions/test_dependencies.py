"""Tasks that depend on tasks in another partition: what is noted, delivered, and made up for."""

from __future__ import annotations

import dataclasses
import io
import itertools
import json
from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Any, cast

import pytest
from werkzeug.test import Client

from firmq import Queue, new_task
from firmq.gateway.app import create_router
from firmq.shared.config.settings import Settings
from firmq.shared.domain.lock import NO_LOCK
from firmq.shared.domain.partition import mark_of_partition, partition_of_id
from firmq.shared.domain.task import NewTask, On, Parent, TaskState, new_task_id
from firmq.shared.errors import StoreUnavailable
from firmq.shared.redis.client import connect
from firmq.shared.redis.scripts import Scripts
from firmq.shared.stores import maintenance
from firmq.shared.stores.api_keys import Scope, new_key
from firmq.shared.stores.dependencies import read_relations
from firmq.shared.stores.queues import Queues
from firmq.shared.stores.remote_parents import KEPT, RemoteParents, Seen
from firmq.shared.stores.tasks import Records
from firmq.shared.submission.placement import Submissions, introduce
from firmq.shared.submission.refusals import Refusal
from firmq.worker.housekeeping.jobs.dependencies import MOST, REMOVED_AFTER, Dependencies
from tests.integration.partitions.conftest import Routed
from tests.support.clock import FakeClock
from tests.support.store import WEIGHTS, Store

DAY = timedelta(days=1)
MINUTE = timedelta(minutes=1)


class Held:
    """The lock of one run."""

    def check(self) -> None:
        """It is held."""


class Away(RemoteParents):
    """The dependencies of a partition that can be away, or not get what is told to it."""

    is_away = False

    def watch(self, ids: Any, partition: int) -> Seen:
        self._answer()
        return super().watch(ids, partition)

    def note(self, seen: Seen, *, for_new_task: bool = False) -> None:
        self._answer()
        super().note(seen, for_new_task=for_new_task)

    def has(self, task_id: str) -> bool:
        self._answer()
        return super().has(task_id)

    def _answer(self) -> None:
        if self.is_away:
            raise StoreUnavailable("away")


def a_task(number: int, *parents: str, on: str = "success", **options: Any) -> NewTask:
    relations = tuple(Parent(task_id=each, on=On(on)) for each in parents)
    made = new_task_id(mark_of_partition(number))
    return NewTask(id=made, type="noop", data="null", queue="normal", parents=relations, **options)


class Family:
    """Parents and children in three partitions on one clock, and the job of each that tells the others."""

    def __init__(self, settings: Settings) -> None:
        self.clock = FakeClock()
        self.numbers = itertools.count()
        self.stores: dict[int, Store] = {}
        self.parents: dict[int, Away] = {}
        for number, own in settings.partitions.items():
            redis = connect(own.store_url)
            scripts = Scripts(redis, self.clock)
            self.stores[number] = Store(redis, self.clock, scripts, Queues(scripts, WEIGHTS), Records(scripts, WEIGHTS))
            self.parents[number] = Away(scripts, number)
        self.jobs = {each: Dependencies(each, self.parents, timedelta(seconds=1)) for each in self.stores}

    def new(
        self,
        number: int,
        *parents: str,
        on: str = "success",
        at: int | None = None,
        unmarked: bool = False,
        **options: Any,
    ) -> str:
        """Submits a task to a partition, as a gateway does; `at` is where the parents are, if their ids do not say."""
        places = {each: partition_of(each) if at is None else at for each in parents}
        introduce(places, number, self.parents)
        task = a_task(number, *parents, on=on, **options)
        if unmarked:
            task = dataclasses.replace(task, id=new_task_id())
        self.stores[number].queues.submit([task])
        return task.id

    def end(self, task_id: str, kind: str = "completed", at: int | None = None) -> None:
        store = self.stores[partition_of(task_id) if at is None else at]
        token = f"{task_id} {next(self.numbers)}"
        assert task_id in store.claim(10, token=token)
        assert store.report(task_id, kind, token=token) == 1

    def run(self, *numbers: int) -> None:
        for number in numbers or self.jobs:
            self.jobs[number].run(cast("Any", Held()))

    def state(self, task_id: str) -> TaskState:
        return self.stores[partition_of(task_id)].state(task_id)

    def known(self, number: int, parent: str) -> Any:
        scripts = self.stores[number].scripts
        found: Any = scripts.redis.hgetall(scripts.keys.remote_parent(parent))
        return found


def partition_of(task_id: str) -> int:
    return partition_of_id(task_id) or 0


@pytest.fixture
def family(three: Settings) -> Iterator[Family]:
    found = Family(three)
    yield found
    for each in found.stores.values():
        each.redis.close()


def test_a_task_waits_for_parents_in_two_partitions(family: Family) -> None:
    parents = [family.new(0), family.new(1)]
    child = family.new(2, *parents)
    assert family.state(child) is TaskState.BLOCKED
    family.end(parents[0])
    family.run()
    assert family.state(child) is TaskState.BLOCKED
    family.end(parents[1])
    assert family.state(child) is TaskState.BLOCKED, "it is told by the job"
    family.run()
    assert family.state(child) is TaskState.PENDING
    assert not family.parents[1].notices(2, MOST), "what was delivered is settled"


def test_it_gets_their_results(family: Family) -> None:
    parents = [family.new(0), family.new(1)]
    child = family.new(1, *parents)
    for parent in parents:
        family.end(parent)
    family.run()
    store = family.stores[1]
    reply = store.scripts.call("claim", "w", "t", 1_000_000, 1, 1 << 20, "normal", 0, "normal", 1)
    [row] = [row for row in reply[3] if row[0].decode() == child]
    assert [[each[0], each[1]] for each in json.loads(row[12])["parents"]] == [[each, "completed"] for each in parents]
    assert all(each[2] for each in json.loads(row[12])["parents"])


@pytest.mark.parametrize(
    ("kind", "policy", "state"),
    [
        ("failed", "cancel", TaskState.CANCELLED),
        ("failed", "release", TaskState.PENDING),
        ("failed", "wait", TaskState.BLOCKED),
    ],
)
def test_the_end_of_a_parent_decides_as_in_one_partition(
    family: Family, kind: str, policy: str, state: TaskState
) -> None:
    parent = family.new(1)
    child = family.new(0, parent, on_parent_failure=policy)
    family.end(parent, kind)
    family.run()
    assert family.state(child) is state
    after = family.new(0, parent, on_parent_failure=policy)
    assert family.state(after) is state, "the same for one that is submitted after the end"


def test_a_dead_letter_that_completes_after_all_releases_what_waits_for_it(family: Family) -> None:
    parent = family.new(1)
    early = family.new(0, parent, on_parent_failure="wait")
    family.end(parent, "failed")
    family.run()
    late = family.new(2, parent, on_parent_failure="wait")
    assert {family.state(early), family.state(late)} == {TaskState.BLOCKED}
    assert family.stores[1].scripts.call("requeue", "", "x", "", parent)
    family.end(parent)
    family.run()
    assert {family.state(early), family.state(late)} == {TaskState.PENDING}


def test_a_parent_that_is_removed_cancels_what_waits_for_it(family: Family) -> None:
    parent = family.new(1)
    child = family.new(0, parent, on_parent_failure="wait")
    family.end(parent, "failed")
    family.run()
    family.clock.advance(2 * DAY)
    maintenance.prune(family.stores[1].scripts, "failed", 0, 10)
    maintenance.run_deferred(family.stores[1].scripts, 100)
    family.run()
    assert family.state(child) is TaskState.CANCELLED


def test_an_unknown_parent_is_refused(family: Family) -> None:
    missing = new_task_id(mark_of_partition(1))
    introduce({missing: 1}, 0, family.parents)
    [stored] = family.stores[0].queues.submit([a_task(0, missing)])
    assert stored.missing_parent == missing
    assert not family.known(0, missing)


def test_while_the_partition_of_a_parent_is_away_nothing_is_stored(family: Family) -> None:
    parent = family.new(1)
    family.parents[1].is_away = True
    with pytest.raises(Refusal, match="does not answer"):
        family.new(0, parent)
    assert not family.stores[0].redis.exists(family.stores[0].scripts.keys.TASKS)


def test_a_notice_waits_for_a_partition_that_is_away_and_for_no_other(family: Family) -> None:
    parent = family.new(1)
    children = [family.new(0, parent), family.new(2, parent)]
    family.end(parent)
    family.parents[0].is_away = True
    family.run(1)
    assert [family.state(each) for each in children] == [TaskState.BLOCKED, TaskState.PENDING]
    family.clock.advance(2 * DAY)
    assert maintenance.prune(family.stores[1].scripts, "completed", 0, 10).removed == 0, "its result is needed there"
    family.parents[0].is_away = False
    family.run(1)
    assert family.state(children[0]) is TaskState.PENDING
    assert maintenance.prune(family.stores[1].scripts, "completed", 0, 10).removed == 1


def test_what_arrives_late_or_twice_changes_nothing(family: Family) -> None:
    parent = family.new(1)
    child = family.new(0, parent, on_parent_failure="wait")
    family.end(parent, "failed")
    late = family.parents[1].watch([parent], 0)
    family.clock.advance(MINUTE)
    family.stores[1].scripts.call("requeue", "", "x", "", parent)
    family.end(parent)
    family.run()
    assert family.state(child) is TaskState.PENDING
    family.parents[0].note(late)
    family.run()
    assert family.known(0, parent)[b"state"] == b"completed"
    assert family.state(child) is TaskState.PENDING


def test_an_end_while_a_notice_is_delivered_is_delivered_too(family: Family) -> None:
    parent = family.new(1)
    child = family.new(0, parent, on_parent_failure="wait")
    family.end(parent, "failed")
    own = family.parents[1]
    notices = own.notices(0, MOST)
    family.parents[0].note(own.watch([parent], 0))
    family.clock.advance(MINUTE)
    family.stores[1].scripts.call("requeue", "", "x", "", parent)
    family.end(parent)
    own.settle(0, notices)
    assert family.state(child) is TaskState.BLOCKED
    family.run(1)
    assert family.state(child) is TaskState.PENDING


def test_an_end_between_the_look_up_and_the_submission_is_not_missed(family: Family) -> None:
    parent = family.new(1)
    introduce({parent: 1}, 0, family.parents)
    family.end(parent)
    family.run()
    store, task = family.stores[0], a_task(0, parent)
    store.queues.submit([task])
    assert store.state(task.id) is TaskState.PENDING


def test_a_parent_stays_known_until_the_submission_has_come(family: Family) -> None:
    parent = family.new(1)
    introduce({parent: 1}, 0, family.parents)
    family.clock.advance(2 * MINUTE)
    family.run(0)
    [stored] = family.stores[0].queues.submit([a_task(0, parent)])
    assert stored.missing_parent is None


def test_a_lost_notice_is_made_up_for(family: Family) -> None:
    parent = family.new(1)
    child = family.new(0, parent)
    family.end(parent)
    scripts = family.stores[1].scripts
    scripts.redis.delete(scripts.keys.notices("0"))
    family.run()
    assert family.state(child) is TaskState.BLOCKED
    family.clock.advance(2 * MINUTE)
    family.run(0)
    assert family.state(child) is TaskState.PENDING


def test_a_lost_registration_is_made_up_for(family: Family) -> None:
    parent = family.new(1)
    child = family.new(0, parent)
    scripts = family.stores[1].scripts
    scripts.redis.delete(scripts.keys.children(parent))  # after a failover, for instance
    family.clock.advance(2 * MINUTE)
    family.run(0)
    family.end(parent)
    family.run(1)
    assert family.state(child) is TaskState.PENDING


def test_relatives_show_the_states_of_parents_elsewhere(family: Family) -> None:
    parents = [family.new(1), family.new(2)]
    child = family.new(0, *parents)
    family.end(parents[0])
    family.run()
    relatives = read_relations(family.stores[0].redis, child).relatives
    assert [relatives[each].state for each in parents] == [TaskState.COMPLETED, TaskState.PENDING]


def test_the_result_of_a_parent_outlives_its_record(family: Family) -> None:
    parent, other = family.new(1), family.new(2)
    early = family.new(0, parent, other)
    family.end(parent)
    family.run()
    known = family.known(0, parent)
    family.clock.advance(2 * DAY)
    assert maintenance.prune(family.stores[1].scripts, "completed", 0, 10).removed == 1
    late = family.new(0, parent)
    assert family.known(0, parent) == known
    assert family.state(late) is TaskState.PENDING
    family.end(other)
    family.run()
    assert family.state(early) is TaskState.PENDING


def test_what_no_task_needs_is_forgotten(family: Family) -> None:
    parent = family.new(1)
    introduce({parent: 1}, 2, family.parents)
    child = family.new(0, parent)
    family.clock.advance(KEPT + MINUTE)
    family.run()
    assert family.known(0, parent), "a task waits for it"
    assert not family.known(2, parent)
    family.end(parent)
    family.run()
    family.end(child)
    family.clock.advance(KEPT + MINUTE)
    family.run()
    assert not family.known(0, parent)
    keys = family.stores[0].scripts.keys
    assert not family.stores[0].redis.exists(keys.REMOTE_PARENTS, keys.children(parent))


def test_the_consistency_check_repairs_a_lost_child(family: Family) -> None:
    parent = family.new(1)
    child = family.new(0, parent)
    scripts = family.stores[0].scripts
    scripts.redis.delete(scripts.keys.children(parent))
    family.end(parent)
    family.run()
    assert family.state(child) is TaskState.BLOCKED
    for _ in range(3):
        maintenance.check_consistency(scripts, ["normal"], 0, 100, NO_LOCK)
    maintenance.run_deferred(scripts, 100)
    assert family.state(child) is TaskState.PENDING


@pytest.mark.parametrize("on", ["success", "end"])
def test_a_restored_child_waits_for_its_parent_again(family: Family, on: str) -> None:
    parent = family.new(1)
    child = family.new(0, parent, on=on)
    store = family.stores[0]
    store.queues.cancel(child, "")
    family.clock.advance(KEPT + MINUTE)
    family.run()
    assert not family.known(0, parent), "nothing needed it"
    store.queues.restore(child)
    assert family.state(child) is TaskState.BLOCKED
    family.run()
    assert family.state(child) is TaskState.BLOCKED
    family.end(parent)
    family.run()
    assert family.state(child) is TaskState.PENDING


@pytest.mark.parametrize("kind", ["unmarked", "own", "elsewhere"])
def test_a_parent_that_is_nowhere_does_not_hold_its_child_for_ever(family: Family, kind: str) -> None:
    own = 2 if kind == "own" else 1
    parent = family.new(own, unmarked=kind == "unmarked")
    child = family.new(2, parent, at=own)
    scripts = family.stores[own].scripts
    scripts.redis.delete(scripts.keys.rq_job(parent), scripts.keys.children(parent))
    family.clock.advance(2 * MINUTE)
    if kind == "own":
        for _ in range(3):
            maintenance.check_consistency(scripts, ["normal"], 0, 100, NO_LOCK)
    family.run()
    family.run()
    assert family.state(child) is TaskState.CANCELLED


def test_an_unmarked_parent_is_looked_up_where_it_was_found(family: Family) -> None:
    parent = family.new(1, unmarked=True)
    child = family.new(2, parent, at=1)
    family.end(parent, at=1)
    scripts = family.stores[1].scripts
    scripts.redis.delete(scripts.keys.notices("2"))
    family.parents[0].is_away = True
    family.clock.advance(2 * MINUTE)
    family.run(2)
    assert family.state(child) is TaskState.PENDING


def test_while_one_partition_is_away_no_parent_counts_as_gone(family: Family) -> None:
    parent = family.new(1, unmarked=True)
    child = family.new(2, parent, at=1)
    scripts = family.stores[2].scripts
    scripts.redis.delete(scripts.keys.remote_parent(parent), scripts.keys.children(parent))
    for _ in range(3):
        maintenance.check_consistency(scripts, ["normal"], 0, 100, NO_LOCK)
    family.parents[1].is_away = True
    family.clock.advance(2 * MINUTE)
    family.run(2)
    assert family.state(child) is TaskState.BLOCKED
    family.parents[1].is_away = False
    family.clock.advance(2 * MINUTE)
    family.run(2)
    family.end(parent, at=1)
    family.run(1)
    assert family.state(child) is TaskState.PENDING


def test_a_parent_in_a_partition_that_was_removed_counts_as_gone_after_an_hour(family: Family) -> None:
    parent = family.new(1)
    child = family.new(0, parent)
    for job in family.jobs.values():
        job.partitions = {number: each for number, each in family.parents.items() if number != 1}
    family.clock.advance(2 * MINUTE)
    family.run(0)
    assert family.state(child) is TaskState.BLOCKED, "this process may have an old list"
    family.clock.advance(REMOVED_AFTER)
    family.run(0)
    assert family.state(child) is TaskState.CANCELLED


def test_large_results_arrive_in_steps_and_too_large_ones_not_at_all(family: Family) -> None:
    sizes = [1_500_000] * 6 + [3_000_000]
    parents = [family.new(1) for _ in sizes]
    child = family.new(0, *parents)
    store = family.stores[1]
    assert set(store.claim(10)) == set(parents)
    for parent, size in zip(parents, sizes, strict=True):
        assert store.report(parent, "completed") == 1
        key = store.scripts.keys.rq_results(parent)
        store.redis.delete(key)
        store.redis.xadd(key, {"type": "1", "return_value": "x" * size})
    family.run()
    assert family.state(child) is TaskState.PENDING
    found = [family.known(0, each) for each in parents]
    assert [len(each[b"found"]) for each in found] == [1_500_000] * 6 + [0]
    assert found[-1][b"mark"] == b" too-large"
    reply = family.stores[0].scripts.call("claim", "w", "t", 1_000_000, 1, 64 << 20, "normal", 0, "normal", 1)
    assert json.loads(reply[3][0][12])["parents"][-1][1:] == ["completed too-large", ""]


def test_many_children_of_many_parents(family: Family) -> None:
    parents = [family.new(1) for _ in range(250)]
    children = [family.new(0, each) for each in parents]
    last = family.new(2, *parents)
    claimed = [(each, token) for token in map(str, range(30)) for each in family.stores[1].claim(10, token=token)]
    assert [family.stores[1].report(each, "completed", token=token) for each, token in claimed] == [1] * 250
    family.run()
    maintenance.run_deferred(family.stores[0].scripts, 1000)
    maintenance.run_deferred(family.stores[2].scripts, 1000)
    assert {family.state(each) for each in (*children, last)} == {TaskState.PENDING}


# --- over HTTP ---


def test_a_gateway_takes_parents_in_different_partitions(routed: Routed) -> None:
    parents = [{"task_id": routed.submit_to(number)} for number in (2, 1)]
    child = routed.submit(depends_on=parents)
    assert partition_of(child) == 2, "it is where its first parent is"
    assert routed.get(f"/tasks/{child}")["status"] == "blocked"
    assert [each["task_id"] for each in routed.get(f"/tasks/{child}")["depends_on"]] == [
        each["task_id"] for each in parents
    ]


def test_a_unique_key_meets_its_store_wherever_the_parents_are(routed: Routed) -> None:
    parents = [routed.submit_to(number) for number in range(3)]
    first = routed.submit(unique_key="k", depends_on=[{"task_id": parents[0]}])
    for parent in parents[1:]:
        answer = routed.post(
            "/tasks", {"type": "process", "data": 1, "unique_key": "k", "depends_on": [{"task_id": parent}]}
        )
        assert (answer.status_code, answer.json["existing_task"]) == (409, first)


def test_a_parent_nobody_has_is_refused_over_http(routed: Routed) -> None:
    parent = routed.submit_to(1)
    missing = new_task_id(mark_of_partition(2))
    answer = routed.post(
        "/tasks", {"type": "process", "data": 1, "depends_on": [{"task_id": parent}, {"task_id": missing}]}
    )
    assert (answer.status_code, missing in answer.json["detail"]) == (422, True)


def test_while_a_parent_is_away_a_gateway_says_that_nothing_was_changed(
    routed: Routed, monkeypatch: pytest.MonkeyPatch
) -> None:
    parents = [{"task_id": routed.submit_to(number)} for number in (1, 2)]

    def watch(*_: object) -> Seen:
        raise StoreUnavailable("away")

    monkeypatch.setattr(routed.router.members.all[2].parents, "watch", watch)
    answer = routed.post("/tasks", {"type": "process", "data": 1, "depends_on": parents})
    assert (answer.status_code, answer.json["unchanged"]) == (503, True)
    assert answer.json["detail"].endswith("Nothing was changed")


def test_batches_and_rows_of_an_outbox_too(routed: Routed) -> None:
    parents = [routed.submit_to(number) for number in range(3)]
    tasks = [{"type": "process", "data": 1, "depends_on": [{"task_id": each}]} for each in parents]
    answer = routed.post("/tasks/batch", {"tasks": tasks})
    assert [each["status"] for each in answer.json["items"]] == ["blocked"] * 3
    opened = routed.post("/batches", {"tasks": [{"type": "process", "data": 1}]})
    assert opened.status_code == 202, opened.text
    more = routed.post(f"/batches/{opened.json['batch_id']}/tasks", {"tasks": tasks})
    assert more.status_code == 202, more.text
    rows = [{**each, "task_id": new_task_id()} for each in tasks for _ in range(5)]
    items = routed.post("/tasks/outbox", {"rows": rows}).json["items"]
    assert len(items) == 15
    assert not [each for each in items if "problem" in each], items


def test_without_a_key_nothing_is_noted(routed: Routed, three: Settings) -> None:
    key, text = new_key("shop", [Scope.SUBMIT])
    router = create_router(Settings.model_validate({**three.model_dump(), "api_keys": [key.line]}))
    body = {"type": "process", "data": 1, "depends_on": [{"task_id": routed.submit_to(number)} for number in (1, 2)]}
    http = Client(router)
    assert http.post("/tasks", json=body).status_code == 401
    assert not routed.scripts[1].redis.exists(routed.scripts[1].keys.REMOTE_PARENTS)
    assert http.post("/tasks", json=body, headers={"Authorization": f"Bearer {text}"}).status_code == 202


def test_tasks_of_a_batch_from_earlier_ones_too(routed: Routed) -> None:
    source = routed.post("/batches", {"tasks": [{"type": "process", "data": 1}]}).json["batch_id"]
    parent = routed.submit_to(next(number for number in range(3) if number != partition_of(source)))
    task = {"type": "process", "data": 1, "depends_on": [{"task_id": parent}]}
    answer = routed.post("/batches", {"from": {"batch_id": source}, "task": task})
    assert [each.get("status") for each in answer.json["items"]] == ["blocked"]


def test_a_body_without_a_length_is_passed_on(routed: Routed) -> None:
    batch = routed.post("/batches", {"tasks": [{"type": "process", "data": 1}]}).json["batch_id"]
    body = json.dumps({"tasks": [{"type": "process", "data": 1}]}).encode()
    answer = routed.http.post(
        f"/batches/{batch}/tasks",
        input_stream=io.BytesIO(body),
        content_type="application/json",
        environ_overrides={"wsgi.input_terminated": True, "CONTENT_LENGTH": ""},
    )
    assert answer.status_code == 202, answer.text


def test_odd_names_are_refused_as_with_one_server(routed: Routed) -> None:
    answer = routed.post("/tasks", {"type": "process", "data": 1, "unique_key": "a\udc80"})
    assert (answer.status_code, "surrogate" in answer.text) == (400, True)


def test_a_parent_that_is_away_refuses_only_its_children(routed: Routed, monkeypatch: pytest.MonkeyPatch) -> None:
    parents = [routed.submit_to(number) for number in (1, 2)]
    watch = RemoteParents.watch

    def away(self: RemoteParents, ids: Sequence[str], partition: int) -> Seen:
        if parents[1] in ids:
            raise StoreUnavailable("away")
        return watch(self, ids, partition)

    monkeypatch.setattr(RemoteParents, "watch", away)
    monkeypatch.setattr(Submissions, "free", lambda self, but=(): self.by_number[1])
    address = routed.settings.model_dump(include={"redis_url", "redis_partitions"})
    with Queue(**address, patience=0.3) as queue:
        found = queue.submit_many(
            [new_task("process", 1), new_task("process", 2, depends_on=[{"task_id": each} for each in parents])]
        )
    assert [type(each).__name__ for each in found] == ["Accepted", "Unavailable"]
