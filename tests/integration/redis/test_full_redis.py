"""A Redis that is full takes nothing new; what ends or frees something is written, whatever ties a task has."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta

import pytest
from redis import Redis

from firmq.shared.domain.lock import FencingToken
from firmq.shared.domain.schedule import Schedule
from firmq.shared.domain.task import (
    BatchPlace,
    NewTask,
    On,
    OnParentFailure,
    Parent,
    TaskState,
    Unique,
    Webhook,
    new_task_id,
)
from firmq.shared.errors import StoreRefused
from firmq.shared.features.history.unarchived import Unarchived
from firmq.shared.redis.client import translated
from firmq.shared.redis.linker import sources
from firmq.shared.stores import maintenance
from firmq.shared.stores.batches import Batches, BatchTerms
from firmq.shared.stores.dead_letters import DeadLetters, amend, requeue
from firmq.shared.stores.idempotency import request_begin, request_end
from firmq.shared.stores.limits import limit_declare, limit_delete, limit_put
from firmq.shared.stores.maintenance import Pruned
from firmq.shared.stores.queues import run_now, submission_check
from firmq.shared.stores.schedules import ScheduleStore
from firmq.shared.stores.tasks import discard
from tests.support.features import rows
from tests.support.keys import keys
from tests.support.store import WEIGHTS, Store

S = TaskState
BATCH = "b1"
NEW = {
    "batch_extend", "batch_open", "request_begin",
    "rq_adopt", "rq_entry",
    "schedule_fire", "schedule_put", "submission_check", "submit", "submit_once", "submit_outbox", "submit_one",
    "submit_one_once", *rows("NEW"),
}  # fmt: skip
"""Scripts that bring something new, or ask whether that would be taken, which a full Redis is to refuse."""

READS = {
    "EXISTS", "GET", "HEXISTS", "HGET", "HGETALL", "HKEYS", "HMGET", "SCARD", "SMEMBERS", "XREVRANGE", "ZCARD",
    "ZCOUNT", "ZRANGE", "ZRANK", "ZREVRANGE", "ZREVRANGEBYSCORE", "ZSCORE",
}  # fmt: skip
"""Commands that change nothing."""


@contextmanager
def full(redis: Redis) -> Iterator[None]:
    """Redis takes no command that could need memory."""
    redis.config_set("maxmemory", 1)
    try:
        yield
    finally:
        redis.config_set("maxmemory", 0)


@dataclass
class Family:
    """A task that has every tie, in the state that a test wants, and the child that waits for it."""

    store: Store
    task: str
    child: str

    def removed(self) -> bool:
        return not self.store.redis.exists(keys.rq_job(self.task))


def new(**options: object) -> NewTask:
    return NewTask(id=new_task_id(), type="noop", data="null", queue="normal", **options)  # type: ignore[arg-type]  # of several kinds


@pytest.fixture
def family(store: Store) -> Family:
    """Its parent has completed, and a worker has it."""
    batches = Batches(store.scripts)
    batches.open(BATCH, BatchTerms(max_running=5))
    [parent] = store.submit()
    task = new(
        parents=(Parent(task_id=parent, on=On.END),),
        batch=BatchPlace(batch_id=BATCH, index=1),
        tags=("red",),
        unique=Unique(key="only"),
        webhook=Webhook(url="https://hooks.example/x", events=("completed",)),
        limit_key="shop",
        fair_key="alice",
        expires_in=timedelta(hours=1),
    )
    child = new(parents=(Parent(task_id=task.id, on=On.SUCCESS),), on_parent_failure=OnParentFailure.WAIT)
    store.queues.submit([task, child])
    batches.close(BATCH)
    assert store.claim() == [parent]
    store.report(parent, "completed")
    assert store.claim(token="t2") == [task.id]
    return Family(store, task.id, child.id)


@pytest.fixture
def dead(family: Family) -> Family:
    """It is a dead letter."""
    assert family.store.report(family.task, "failed", "t2") == 1
    assert family.store.state(family.child) is S.BLOCKED
    return family


def commands(text: str) -> set[str]:
    """What a script asks of Redis."""
    return set(re.findall(r"redis\.p?call\('([A-Z]+)'", text))


def test_every_script_that_writes_begins_with_a_write_that_is_never_refused_unless_it_brings_something_new() -> None:
    texts = sources()
    assert texts.keys() > NEW
    for name, text in texts.items():
        if name.startswith("_") or name in NEW:
            continue
        head, begins, _ = text.partition("write_even_when_full()")
        assert commands(head) <= READS, name
        reads_only = "changes nothing" in text
        assert begins or reads_only, f"{name} is refused by a full Redis when its first write could need memory"


def test_a_full_redis_takes_no_task(store: Store) -> None:
    with full(store.redis), pytest.raises(StoreRefused):
        store.submit()


def test_a_full_redis_still_says_how_many_tasks_it_has(store: Store) -> None:
    store.submit(3)
    with full(store.redis):
        assert store.records.counts()[S.PENDING] == 3


def test_who_asks_a_full_redis_whether_it_takes_tasks_is_told_no(store: Store) -> None:
    submission_check(store.scripts)
    with full(store.redis), pytest.raises(StoreRefused), translated():
        submission_check(store.scripts)


@pytest.mark.parametrize(
    "remove",
    [
        lambda dead: maintenance.prune(dead.store.scripts, "failed", 0, 10),
        lambda dead: maintenance.trim(dead.store.scripts, "failed", 0, 10),
        lambda dead: DeadLetters(dead.store.scripts, dead.store.records).purge(dead.task),
    ],
    ids=["past its retention", "over the limit", "by hand"],
)
def test_an_ended_task_that_has_every_tie_is_removed(dead: Family, remove: Callable[[Family], object]) -> None:
    with full(dead.store.redis):
        remove(dead)
    assert dead.removed()
    assert dead.store.redis.hget(keys.batch(BATCH), "removed") == b"1"
    assert dead.store.redis.zscore(keys.DEFERRED_WORK, f"task:{dead.task}") is not None, "its child is told"


def test_a_completed_batch_task_is_removed_when_no_child_needs_it(family: Family) -> None:
    family.store.report(family.task, "completed", "t2")
    family.store.queues.cancel(family.child, "not needed")
    with full(family.store.redis):
        assert maintenance.trim(family.store.scripts, "completed", 0, 10) == Pruned(removed=2, looked=2)
    assert family.removed()


def test_an_unreadable_record_is_removed(dead: Family) -> None:
    dead.store.redis.hdel(keys.rq_job(dead.task), "description")
    with full(dead.store.redis):
        assert discard(dead.store.scripts, dead.task, list(WEIGHTS))
    assert dead.removed()


def test_a_dead_letter_is_sent_back_as_it_is_or_with_other_data(dead: Family) -> None:
    store = dead.store
    with full(store.redis):
        [sent_back] = requeue(store.scripts, [dead.task])
    assert sent_back.done
    assert store.state(dead.task) is S.PENDING
    assert store.claim(token="t3") == [dead.task]
    store.report(dead.task, "failed", "t3")
    with full(store.redis):
        assert amend(store.scripts, dead.task, "[]").done
    assert store.state(dead.task) is S.PENDING


def test_ends_are_registered_kept_and_taken_for_a_history(family: Family) -> None:
    waiting = Unarchived(family.store.scripts)
    with full(family.store.redis):
        waiting.take(1)
        assert family.store.report(family.task, "failed", "t2") == 1
        requeue(family.store.scripts, [family.task])
        [end] = waiting.take(10)
        assert (end.id, end.fields["state"]) == (family.task, b"failed")
        assert waiting.done([end]) == 1
        waiting.give_up()


def test_a_wait_is_ended_and_what_lost_its_ticket_or_its_place_has_it_again(family: Family) -> None:
    store = family.store
    store.report(family.task, "retrying", "t2", 60_000_000)
    with full(store.redis):
        assert run_now(store.scripts, family.task) == ("retrying", True)
        store.redis.delete(keys.rq_queue("normal"))
        store.clock.advance(timedelta(seconds=60))
        assert maintenance.recover(store.scripts, "normal", 0, 10) == 1
        store.redis.delete(keys.pending("normal"))
        _, found = maintenance.check_consistency(store.scripts, list(WEIGHTS), 10_000_000, 1000, FencingToken())
    assert found["nowhere"] == 1
    assert store.claim(token="t3") == [family.task]


def test_a_queue_is_paused_and_resumed(store: Store) -> None:
    with full(store.redis):
        store.queues.pause("normal", "Redis is full", "ops")
        [paused] = [each.paused for each in store.queues.overview() if each.name == "normal"]
        assert paused == {"reason": "Redis is full", "by": "ops", "at": "2027-01-15T08:00:00+00:00"}
        for _ in range(100):
            store.queues.resume("normal")
    assert not store.redis.exists(keys.PAUSED)
    assert store.redis.llen(keys.wakeup("normal")) == 64, "workers hear of it, and nobody who hears nothing piles it up"


def test_a_type_is_paused_and_resumed(store: Store) -> None:
    store.submit()
    store.queues.pauses.pause("type:noop", "the partner is down")
    assert store.claim() == []
    with full(store.redis):
        store.queues.pauses.resume("type:noop")
        assert len(store.claim(token="t2")) == 1


def test_a_schedule_is_paused_resumed_and_removed(store: Store) -> None:
    schedule_store = ScheduleStore(store.scripts)
    schedule_store.put(Schedule(name="tick", type="noop", queue="normal", interval=60))
    with full(store.redis):
        assert schedule_store.pause("tick", "Redis is full").paused == {"reason": "Redis is full"}
        assert schedule_store.resume("tick").paused is None
        schedule_store.delete("tick")
    assert not store.redis.exists(keys.schedule("tick"))


def test_limits_are_set_and_removed(store: Store) -> None:
    stored = json.dumps({"concurrency": 1, "source": "api", "at": 0})
    with full(store.redis):
        assert limit_declare(store.scripts, {"type:noop": stored}, first=True) == {}
        assert limit_put(store.scripts, "key:shop", stored)
        assert limit_delete(store.scripts, "key:shop")


def test_the_answer_of_a_request_that_was_carried_out_is_kept(store: Store) -> None:
    request_begin(store.scripts, "digest", "same", "me", timedelta(seconds=5), timedelta(hours=1), "seed")
    with full(store.redis):
        assert request_end(store.scripts, "digest", "me", b"done")
    again = request_begin(store.scripts, "digest", "same", "you", timedelta(), timedelta(hours=1), "")
    assert again == ("again", [b"done"])


def test_a_batch_is_closed_and_removed_when_its_tasks_are_gone(dead: Family) -> None:
    store = dead.store
    store.queues.cancel(dead.child, "not needed")
    Batches(store.scripts).open("silent", BatchTerms())
    with full(store.redis):
        maintenance.trim(store.scripts, "failed", 0, 10)
        assert maintenance.batch_prune(store.scripts, 0, 0, 10) == 3
    assert not store.redis.exists(keys.batch(BATCH))
