"""A score orders a task among those of its tenant in its queue, wherever it waits and however it comes there."""

from __future__ import annotations

from datetime import timedelta
from random import Random

import pytest

from firmq.shared.domain.limit import read_limit
from firmq.shared.domain.task import NewTask, TaskState, new_task_id
from firmq.shared.domain.task_fields import HIGHEST_SCORE
from firmq.shared.redis.client import text
from firmq.shared.stores import maintenance
from firmq.shared.stores.dead_letters import requeue
from firmq.shared.stores.limits import Limits
from firmq.shared.stores.task_types import types_waiting
from tests.integration.stores.test_command_bounds import commands_of
from tests.integration.stores.test_throttling import check_consistency
from tests.support.attempt_ends import claiming
from tests.support.keys import keys
from tests.support.limiting import claim, end, submit
from tests.support.store import LEASE, SECOND, Store


def scored(store: Store, *scores: float | None, task_type: str = "noop", fair_key: str | None = None) -> list[str]:
    """Tasks with these scores, submitted in this order."""
    return [submit(store, task_type, score=score, fair_key=fair_key)[0] for score in scores]


def as_they_leave(store: Store, limit: int = 100) -> list[str]:
    """All that wait, one claim after the other."""
    left: list[str] = []
    while taken := claim(store, 3):
        left += taken
    assert len(left) <= limit
    return left


@pytest.mark.parametrize(
    "scores",
    [
        [HIGHEST_SCORE - below for below in range(30)],
        [2**52 + above for above in range(-9, 10)],
        [2**40 + above for above in range(-9, 10)],
        [Random(3).random() for _ in range(30)],
        [0, 5e-324, 1e-9, 0.001, 0.1, 0.1 + 0.2, 1, 999.999, 1e12],
    ],
    ids=["highest", "steps", "whole", "fractions", "small"],
)
def test_no_two_scores_are_confused(store: Store, scores: list[float]) -> None:
    mixed = Random(4).sample(scores, len(scores))
    score_of = dict(zip(scored(store, *mixed), mixed, strict=True))
    assert [score_of[each] for each in as_they_leave(store)] == sorted(scores)


def test_a_task_without_a_score_has_the_time_at_which_it_was_enqueued(store: Store) -> None:
    first, second = scored(store, None, None)
    at = store.records.get(second).summary.score
    assert at == store.clock.now_us / 1000 - 1
    sooner, later, last = scored(store, at - 0.5, at + 0.5, HIGHEST_SCORE)
    assert as_they_leave(store) == [first, sooner, second, later, last]


def test_equal_scores_wait_for_each_other(store: Store) -> None:
    tasks = scored(store, 5, 5, 5, 5)
    assert sorted(as_they_leave(store)) == sorted(tasks)


def test_a_score_orders_within_a_tenant_and_tenants_take_turns(store: Store) -> None:
    ann = scored(store, 3, 2, 1, fair_key="ann")
    bob = scored(store, 30, 20, fair_key="bob")
    plain = scored(store, 0, None)
    assert [each for each in claim(store) if each in ann] == ann[::-1]
    assert store.state(plain[1]) is TaskState.RUNNING
    ann, bob, plain = (scored(store, 9, 8, 7, fair_key=tenant or None) for tenant in ("ann", "bob", ""))
    turns = ["ann" if each in ann else "bob" if each in bob else "" for each in claim(store, 9)]
    assert all(len(set(turns[at : at + 3])) == 3 for at in (0, 3, 6)), turns


def test_a_backlog_without_scores_does_not_come_before_one_with(store: Store) -> None:
    submit(store, count=100)
    submit(store, count=5, fair_key="ann")
    [task] = scored(store, 1)
    assert task in claim(store, 2)


def test_tasks_with_scores_do_not_take_more_turns_than_their_tenant_has(store: Store) -> None:
    ann = submit(store, count=20, fair_key="ann")
    for _ in range(5):
        scored(store, 1)
        submit(store)
        claim(store, 2)
    left = {each for each in ann if store.state(each) is TaskState.PENDING}
    assert len(left) in (15, 16)


@pytest.mark.parametrize("held", ["limit", "type without a worker", "paused type"])
def test_a_score_orders_the_tasks_that_something_holds_back(store: Store, limits: Limits, held: str) -> None:
    if held == "limit":
        limits.put("type:slow", read_limit({"concurrency": 0}))
    elif held == "paused type":
        store.queues.pauses.pause("type:slow", "")
    else:
        store.redis.hset(keys.type_set("s"), mapping={"@first": 1, "noop": "v"})
        store.redis.hset(keys.TYPES_OF, "w", "s")
    three, plain, one = scored(store, 3, None, 1, task_type="slow")
    assert claim(store) == []
    [two] = scored(store, 2, task_type="slow")
    assert claim(store) == []
    assert store.redis.zcard(keys.throttled("normal")) == 4
    limits.delete("type:slow")
    store.queues.pauses.resume("type:slow")
    store.redis.delete(keys.TYPES_OF)
    store.redis.zadd(keys.LIMITS_DUE, {text(each): 1 for each in store.redis.zrange(keys.LIMITS_DUE, 0, -1)})
    assert as_they_leave(store) == [one, two, three, plain]


@pytest.mark.parametrize("way", ["release", "reap", "interrupted", "retry", "dead letter", "undo", "moved", "delay"])
def test_a_task_that_waits_again_waits_in_the_order_of_scores(store: Store, way: str) -> None:
    task, other = scored(store, 2, 3)
    if way == "delay":
        store.queues.change(task, delay=timedelta(seconds=1))
    elif way == "undo":
        store.queues.cancel(task, "")
        store.queues.restore(task)
    elif way == "moved":
        store.queues.change(task, queue="high")
        store.queues.change(task, queue="normal")
    else:
        assert claim(store, 1) == [task]
    scored(store, *range(10, 20))
    submit(store, count=10)
    token = text(store.redis.hget(keys.rq_job(task), "token") or b"")
    if way == "release":
        assert store.scripts.call("release", task, token, 1) == 1
    elif way == "reap":
        store.clock.advance(timedelta(microseconds=LEASE))
        assert len(maintenance.reap(store.scripts, 10, 3)) == 1
    elif way in ("interrupted", "retry"):
        end(store, task, {"retry": "retrying"}.get(way, way))
    elif way == "dead letter":
        end(store, task, "failed")
        requeue(store.scripts, [task], score=2.5)
    store.clock.advance(timedelta(seconds=2))
    maintenance.promote(store.scripts, "normal", 10)
    assert claim(store, 2) == [task, other]


def test_a_score_changes_while_a_task_waits(store: Store) -> None:
    first, second, third = scored(store, None, 2, None)
    since = store.redis.zscore(keys.pending("normal"), third)
    store.queues.change(third, score=1)
    assert store.redis.zscore(keys.throttled("normal"), third) == since
    store.queues.change(second, score=HIGHEST_SCORE)
    delayed = submit(store, delay=timedelta(seconds=5))[0]
    store.queues.change(delayed, score=0)
    assert as_they_leave(store) == [third, first, second]
    store.clock.advance(timedelta(seconds=6))
    maintenance.promote(store.scripts, "normal", 10)
    [after] = scored(store, 1)
    assert as_they_leave(store) == [delayed, after]


def test_a_task_with_a_score_is_counted_and_aged_as_before(store: Store) -> None:
    scored(store, 1, None)
    [_, info] = store.queues.overview()
    assert (info.pending, info.throttled) == (2, 1)
    assert info.oldest_at is not None
    assert info.oldest_at.timestamp() == pytest.approx(store.clock.now_us / SECOND, abs=1)


def test_scores_make_nothing_look_as_if_it_had_waited_since_1970(store: Store) -> None:
    store.redis.hset(keys.type_set("s"), mapping={"@first": 1, "noop": "v"})
    store.redis.hset(keys.TYPES_OF, "w", "s")
    since = store.clock.now_us
    scored(store, 0, 5)
    scored(store, 3, task_type="slow")
    [taken, _] = claim(store)
    assert [(name, count) for name, count, _ in types_waiting(store.scripts)] == [("slow", 1)]
    assert since <= types_waiting(store.scripts)[0][2] <= store.clock.now_us
    attempt = store.records.get(taken).attempts[-1]
    assert attempt.enqueued_at is not None
    assert attempt.enqueued_at.timestamp() == pytest.approx(since / SECOND, abs=1)


@pytest.mark.parametrize("damage", ["wait queue", "tenants", "fair", "throttled", "lists"])
def test_whatever_is_lost_recovery_brings_the_order_back(store: Store, damage: str) -> None:
    tasks = scored(store, 3, 1, 2, 0)
    gone = {
        "wait queue": [keys.wait_queue("normal||")],
        "tenants": [keys.wait_queues("normal|")],
        "fair": [keys.FAIR],
        "throttled": [keys.throttled("normal")],
        "lists": [keys.rq_deferred("normal"), keys.RQ_QUEUES],
    }[damage]
    store.redis.delete(*gone)
    check_consistency(store)
    assert check_consistency(store) == {}
    assert as_they_leave(store) == [tasks[3], tasks[1], tasks[2], tasks[0]]


@pytest.mark.parametrize("corrupt", ["", "soon", "nan", "inf", "-1", "1e300"])
def test_a_corrupt_score_stops_nothing(store: Store, corrupt: str) -> None:
    [task] = scored(store, 3)
    store.redis.hset(keys.rq_job(task), "score", corrupt)
    store.redis.delete(keys.wait_queue("normal||"))
    check_consistency(store)
    assert check_consistency(store) == {}
    assert as_they_leave(store) == [task]
    end(store, task, "interrupted")
    assert as_they_leave(store) == [task]
    store.records.get(task)


def claim_between(store: Store, low: float | str, high: float | str, token: str) -> list[str]:
    """A claim of a worker with bounds; "" is none."""
    reply = store.scripts.call("claim", *claiming("w", token, LEASE, 10, 1 << 20, "normal", 10, scores=(low, high)))
    return [text(row[0]) for row in reply[3]]


@pytest.mark.parametrize("others", ["tasks of other tenants", "older tasks of the other kind"])
def test_a_claim_with_bounds_finds_its_task_behind_any_number_of_others(store: Store, others: str) -> None:
    if others == "tasks of other tenants":
        many = [
            NewTask(id=new_task_id(), type="noop", data="null", queue="normal", score=9, fair_key=f"tenant-{at}")
            for at in range(1000)
        ]
        store.queues.submit(many)
        store.clock.advance(timedelta(milliseconds=1))
        [task] = scored(store, 1, fair_key="last")
    else:
        store.redis.sadd(keys.CONCURRENT_TYPES, "async")
        submit(store, "async", count=1000)
        [task] = submit(store)
    taken: list[str] = []
    for at in range(60):
        store.clock.advance(timedelta(milliseconds=7))
        if taken := claim_between(store, "", 5 if others == "tasks of other tenants" else "", f"bounded-{at}"):
            break
    assert taken == [task]


def test_claims_with_bounds_leave_nothing_in_the_list(store: Store) -> None:
    tasks = [submit(store)[0] for _ in range(25)]
    taken = [each for at in range(4) for each in claim_between(store, 1, "", f"bounded-{at}")]
    assert taken == tasks
    assert store.redis.llen(keys.rq_queue("normal")) == 0


def test_an_entry_in_the_list_is_moved_to_its_place(store: Store) -> None:
    """A worker of an earlier version puts a task that it returns into the list."""
    low, high = scored(store, 1, 2)
    store.redis.zrem(keys.wait_queue("normal||"), low)
    store.redis.zrem(keys.throttled("normal"), low)
    store.redis.hdel(keys.rq_job(low), "wait_queue")
    store.redis.rpush(keys.rq_queue("normal"), low)
    store.redis.zadd(keys.pending("normal"), {low: 1})
    assert as_they_leave(store) == [low, high]


def test_scores_cost_the_claims_after_them_nothing(store: Store) -> None:
    first, second = (claiming("w", each, LEASE, 5, 1 << 20, "high", 0, "normal", 5) for each in ("before", "after"))
    submit(store, count=5)
    before = commands_of(store, "claim", first)
    scored(store, 5, 4)
    submit(store, count=5)
    assert len(as_they_leave(store)) == 7
    submit(store, count=5)
    assert commands_of(store, "claim", second) == before
    for left in ("throttled:*", "wait-queue*", "fair"):
        assert store.redis.keys(f"{keys.prefix}firmq:{left}") == [], left
