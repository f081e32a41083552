"""What one claim costs at most, and what it does to nobody: damaged records, many tenants, large results of parents."""

from __future__ import annotations

import base64
import json
from datetime import timedelta
from typing import Any

import pytest

from firmq.shared.domain.limit import Limit
from firmq.shared.domain.lock import NO_LOCK
from firmq.shared.domain.task import BatchPlace, NewTask, On, Parent, TaskState, new_task_id
from firmq.shared.redis.client import text
from firmq.shared.stores import maintenance
from firmq.shared.stores.batches import Batches, BatchTerms
from firmq.shared.stores.limits import Limits
from tests.support.attempt_ends import claiming, ended, report
from tests.support.keys import keys
from tests.support.store import LEASE, Store

# --- damaged records ---


@pytest.mark.parametrize(("field", "value"), [("expires_at", "soon"), ("parents", "["), ("parents", '"no list"')])
def test_a_corrupt_record_stops_no_start(store: Store, field: str, value: str) -> None:
    [first, damaged, last] = store.submit(3)
    store.redis.hset(keys.rq_job(damaged), mapping={field: value, "relations": "1"})
    assert store.claim(3) == [first, damaged, last]
    assert {store.state(each) for each in (first, damaged, last)} == {TaskState.RUNNING}
    assert store.redis.zcard(keys.LEASES) == 3


def test_a_slot_of_a_record_that_is_gone_is_free_when_its_lease_is_over(store: Store) -> None:
    Limits(store.scripts).put("type:noop", Limit(concurrency=1))
    [gone, waiting] = store.submit(2)
    assert store.claim(2) == [gone]
    store.redis.delete(keys.rq_job(gone))  # as `Job.delete()` of RQ does it
    store.clock.advance(timedelta(microseconds=LEASE + 1))
    maintenance.reap(store.scripts, 10, 3)
    assert not store.redis.exists(keys.slots("type:noop"))
    assert store.claim(2, token="t2") == [waiting]


# --- tenants ---


@pytest.mark.parametrize("field", ["fair_key", "limit_key"])
def test_a_key_emptied_by_hand_is_none(store: Store, field: str) -> None:
    [first, emptied, last] = store.submit(3)
    store.redis.sadd(keys.FAIR, "high")  # so that claims look for tenants at all
    store.redis.hset(keys.rq_job(emptied), field, "")
    assert store.claim(3) == [first, emptied, last]


def test_a_task_in_the_line_of_no_tenant_comes_home(store: Store) -> None:
    [lost] = store.submit(fair_key="a")
    store.redis.delete(keys.wait_queue("normal||a"), keys.wait_queues("normal|"))
    store.redis.hset(keys.rq_job(lost), mapping={"fair_key": "", "wait_queue": "normal||"})
    maintenance.check_consistency(store.scripts, ["high", "normal"], LEASE, 100, NO_LOCK)
    assert store.claim() == [lost]


def test_tenants_who_have_gone_cost_a_claim_no_more_than_it_may(store: Store) -> None:
    """The names of tenants without tasks stay in the turns; a claim looks at some of them and asks to come again."""
    store.submit(fair_key="living")
    gone = {f"gone-{number}": number for number in range(3_000)}
    store.redis.zadd(keys.wait_queues("normal|"), gone)
    looks = 0
    while not (claimed := _claim(store, 1))[3]:
        assert claimed[2] == 1, "it asks to come again"
        looks += 1
        assert store.redis.zcard(keys.wait_queues("normal|")) >= len(gone) - 2001 * looks
        assert looks < 10
    assert looks >= 1


# --- limits ---


def test_a_limit_on_many_that_wait_already_costs_a_claim_no_more_than_it_may(store: Store) -> None:
    """They stand in the queue's list; those that the limit lets not start are taken out of it step by step."""
    first, *_ = store.submit(3000)
    Limits(store.scripts).put("type:noop", Limit(concurrency=1))
    claimed = _claim(store, 10)
    assert [text(row[0]) for row in claimed[3]] == [first]
    assert claimed[2] == 1, "it asks to come again"
    assert 120 <= store.redis.zcard(keys.throttled("normal")) <= 260
    looks = 0
    while _claim(store, 10)[2] == 1:
        looks += 1
    assert looks < 25
    assert store.redis.zcard(keys.throttled("normal")) == 2999


def test_a_corrupt_batch_index_stops_no_start(store: Store) -> None:
    batches = Batches(store.scripts)
    batches.open("b", BatchTerms(max_running=1))
    held_up = [store.submit(batch=BatchPlace(batch_id="b", index=at))[0] for at in range(3)]
    batches.close("b")
    batches.cancel("b", "enough")
    for place in ("soon", None):
        store.redis.hset(keys.batch("b"), "work", "cancel")
        store.redis.hdel(keys.batch("b"), "work_at")
        if place:
            store.redis.hset(keys.batch("b"), "work_at", place)
        store.redis.zadd(keys.DEFERRED_WORK, {"batch:b": 1})
        [waiting] = store.submit()
        assert [text(row[0]) for row in _claim(store, 10)[3]] == [waiting]
    assert {store.state(each) for each in held_up} == {TaskState.CANCELLED}


def _claim(store: Store, want: int) -> list[Any]:
    reply: list[Any] = store.scripts.call("claim", *claiming("w", new_task_id(), LEASE, want, 1 << 20, "normal", want))
    return reply


# --- what parents hand on ---


def done_with(store: Store, size: int) -> str:
    """A parent that has ended with a result of so many bytes."""
    [parent] = store.submit()
    store.claim(token=parent)
    result = base64.b64encode(json.dumps("x" * size).encode())
    assert report(store.scripts, ended(parent, parent, "completed", result=result)) == [1]
    return parent


def child_of(store: Store, *parents: str) -> NewTask:
    about = tuple(Parent(task_id=each, on=On.SUCCESS) for each in parents)
    return NewTask(id=new_task_id(), type="noop", data="null", queue="normal", parents=about)


def told(row: list[bytes]) -> list[str]:
    """The states as which a claimed task is told its parents."""
    return [state for _, state, _ in json.loads(row[12])["parents"]]


def test_a_child_gets_its_parents_results_whatever_else_is_claimed_with_it(store: Store) -> None:
    child = child_of(store, done_with(store, 500_000))
    neighbours = [NewTask(id=new_task_id(), type="noop", data=json.dumps("y" * 600_000), queue="normal")]
    store.queues.submit([*neighbours, child])
    by_id = {row[0].decode(): row for row in _claim(store, 5)[3]}
    assert told(by_id[child.id]) == ["completed"]


def test_large_results_of_parents_leave_the_next_ones_to_the_next_claim(store: Store) -> None:
    large = done_with(store, 700_000)
    children = [child_of(store, large) for _ in range(3)]
    store.queues.submit(children)
    for expected in (2, 1):
        rows = _claim(store, 5)[3]
        assert len(rows) == expected
        assert all(told(row) == ["completed"] for row in rows)


def test_what_is_more_than_a_claim_may_be_by_itself_is_left_out_and_said_to_be(store: Store) -> None:
    parents = [done_with(store, 400_000) for _ in range(3)]
    store.queues.submit([child_of(store, *parents)])
    [row] = _claim(store, 5)[3]
    assert told(row) == ["completed", "completed too-large", "completed too-large"]
    assert len(row[12]) < 1 << 20
