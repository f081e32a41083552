"""Who stands aside for a limit is known to all the rest, and nobody is forgotten or let in too early."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from random import Random

import pytest

from firmq.shared.domain.limit import read_limit
from firmq.shared.domain.task import NewTask, TaskState, new_task_id
from firmq.shared.redis.client import text
from firmq.shared.stores import maintenance
from firmq.shared.stores.limits import Limits
from firmq.shared.stores.queues import Queues, SubmitOutcome
from firmq.shared.stores.tasks import Filter
from tests.support.keys import keys
from tests.support.limiting import claim, end, running_under, submit, token_of, waits_aside
from tests.support.store import LEASE, SECOND, WEIGHTS, Store

# --- the rest of the system knows those who stand aside ---


@pytest.fixture
def throttled(store: Store, limits: Limits) -> str:
    """A task that stands aside because another one runs."""
    limits.put("type:slow", read_limit({"concurrency": 1}))
    _, task = submit(store, "slow", 2, expires_in=timedelta(hours=1))
    claim(store)
    assert waits_aside(store) == 1
    return task


def nowhere(store: Store, task_id: str) -> bool:
    """No line, no list and no index of ours or RQ's leads to it but that of its final state."""
    lines = [text(key) for key in store.redis.keys(keys.wait_queue("*"))]
    indexes = [keys.throttled("normal"), keys.pending("normal"), keys.rq_deferred("normal"), *lines]
    return not any(store.redis.zscore(key, task_id) is not None for key in indexes)


def test_it_is_pending_and_counted_listed_and_shown_with_what_it_waits_for(store: Store, throttled: str) -> None:
    [_, info] = store.queues.overview()
    assert (info.pending, info.throttled) == (1, 1)
    assert info.oldest_at is not None
    assert store.records.counts()[TaskState.PENDING] == 1
    page = store.records.page(Filter(state=TaskState.PENDING), limit=10)
    assert [item.id for item in page.items] == [throttled]
    assert store.records.get(throttled).throttled_by == "type:slow"


def test_for_rq_it_is_deferred(store: Store, throttled: str) -> None:
    from rq.job import Job
    from rq.registry import DeferredJobRegistry
    from rq.serializers import JSONSerializer

    registry = DeferredJobRegistry("normal", connection=store.redis, serializer=JSONSerializer)
    assert registry.get_job_ids(cleanup=False) == [throttled]
    assert Job.fetch(throttled, connection=store.redis, serializer=JSONSerializer).get_status() == "deferred"


def test_it_can_be_cancelled(store: Store, throttled: str) -> None:
    store.queues.cancel(throttled, "")
    assert nowhere(store, throttled)
    assert claim(store) == []


def test_it_expires(store: Store, throttled: str) -> None:
    store.clock.advance(timedelta(hours=2))
    assert maintenance.expire(store.scripts, 10) == 1
    assert store.state(throttled) is TaskState.EXPIRED
    assert nowhere(store, throttled)


def test_it_counts_against_the_length_of_its_queue(store: Store, throttled: str) -> None:
    full = Queues(store.scripts, WEIGHTS, max_length=1)
    [answer] = full.submit([NewTask(id=new_task_id(), type="fast", data="null", queue="normal")])
    assert answer.outcome is SubmitOutcome.FULL


def test_a_paused_queue_keeps_its_lines(store: Store, limits: Limits, throttled: str) -> None:
    store.queues.pause("normal", "lunch")
    limits.delete("type:slow")
    assert claim(store) == []
    store.queues.resume("normal")
    assert claim(store) == [throttled]


def test_recovery_leaves_it_where_it_is(store: Store, throttled: str) -> None:
    store.clock.advance(timedelta(minutes=5))
    assert maintenance.recover(store.scripts, "normal", SECOND, 100) == 0
    assert check_consistency(store) == {}
    assert store.redis.llen(keys.rq_queue("normal")) == 0


def check_consistency(store: Store) -> dict[str, int]:
    from firmq.shared.domain.lock import FencingToken

    wrong: Counter[str] = Counter()
    for _ in range(20):
        wrong.update(maintenance.check_consistency(store.scripts, list(WEIGHTS), LEASE, 100, FencingToken())[1])
    return dict(wrong)


@pytest.mark.parametrize("damage", ["wait queue", "tenants", "due", "throttled", "everything of rq"])
def test_whatever_is_lost_of_a_line_recovery_brings_its_tasks_back(
    store: Store, limits: Limits, throttled: str, damage: str
) -> None:
    gone = {
        "wait queue": [text(key) for key in store.redis.keys(keys.wait_queue("*"))],
        "tenants": [text(key) for key in store.redis.keys(keys.wait_queues("*"))],
        "due": [keys.LIMITS_DUE],
        "throttled": [keys.throttled("normal")],
        "everything of rq": [keys.rq_queue("normal"), keys.rq_deferred("normal"), keys.RQ_QUEUES],
    }[damage]
    store.redis.delete(*gone)
    check_consistency(store)
    limits.put("type:slow", read_limit({"concurrency": 5}))
    assert claim(store) == [throttled]
    assert nowhere(store, throttled)


@pytest.mark.parametrize("damage", ["the limit is corrupt", "the slots are lost"])
def test_a_task_whose_limit_waits_for_a_slot_in_vain_is_woken(store: Store, throttled: str, damage: str) -> None:
    [running] = running_under(store, "type:slow")
    assert store.redis.zscore(keys.LIMITS_DUE, "type:slow") == float("inf")
    store.redis.delete(keys.slots("type:slow"))
    if damage == "the limit is corrupt":
        store.redis.hset(keys.LIMITS, "type:slow", "-1")
    else:
        end(store, running)
    assert claim(store) == []
    assert check_consistency(store) == {"nowhere": 1}
    assert claim(store) == [throttled]


def test_a_slot_without_a_task_is_found_and_freed(store: Store, limits: Limits) -> None:
    limits.put("type:slow", read_limit({"concurrency": 2}))
    [running] = submit(store, "slow")
    [ended] = submit(store, "slow")
    claim(store)
    end(store, ended)
    store.redis.sadd(keys.slots("type:slow"), ended)
    store.redis.srem(keys.slots("type:slow"), running)
    assert check_consistency(store) == {"slot": 2}
    assert running_under(store, "type:slow") == {running}


def test_a_unique_key_without_a_task_is_found_and_freed(store: Store) -> None:
    store.redis.hset(keys.UNIQUE, "noop:k", "gone")
    assert check_consistency(store) == {"unique_key": 1}
    assert not store.redis.exists(keys.UNIQUE)


# --- anything in any order ---

MOST = {"type:a": 2, "type:b": 3, "key:x": 1, "key:y": 4}


class Turmoil:
    """A system to which anything happens in any order."""

    def __init__(self, store: Store, random: Random) -> None:
        self.store = store
        self.random = random

    def running(self) -> list[str]:
        return [text(each) for each in self.store.redis.zrange(keys.LEASES, 0, -1)]

    def some_running(self, most: int) -> list[str]:
        running = self.running()
        return self.random.sample(running, min(most, len(running)))

    def put_in(self) -> None:
        submit(
            self.store,
            self.random.choice("abcd"),
            self.random.randint(1, 4),
            self.random.choice(["high", "normal"]),
            limit_key=self.random.choice([None, "x", "y"]),
            fair_key=self.random.choice([None, None, "ann", "bob"]),
        )

    def take(self) -> None:
        claim(self.store, self.random.randint(1, 5))

    def finish(self) -> None:
        for task in self.some_running(3):
            kind = self.random.choice(["completed", "failed", "retrying", "interrupted"])
            end(self.store, task, kind, delay=50_000)

    def let_die(self) -> None:
        self.store.clock.advance(timedelta(microseconds=LEASE))
        maintenance.reap(self.store.scripts, 10, 3)

    def give_back(self) -> None:
        for task in self.some_running(2):
            self.store.scripts.call("release", task, token_of(self.store, task), "")

    def cancel(self) -> None:
        for queue in WEIGHTS:
            for task in self.store.redis.zrange(keys.throttled(queue), 0, 0):
                self.store.queues.cancel(text(task), "")

    def move_due(self) -> None:
        self.store.clock.advance(timedelta(seconds=0.1))
        for queue in WEIGHTS:
            maintenance.promote(self.store.scripts, queue, 10)

    def anything(self) -> None:
        self.random.choice(
            [self.put_in, self.put_in, self.take, self.finish, self.let_die, self.give_back, self.cancel, self.move_due]
        )()

    def unended(self) -> int:
        return sum(count for state, count in self.store.records.counts().items() if not state.ended)

    def check(self) -> None:
        """The slots are those of who runs, and no more than there are."""
        real: Counter[str] = Counter()
        for task in self.running():
            kind, key = self.store.redis.hmget(keys.rq_job(task), ["description", "limit_key"])
            real[f"type:{text(kind)}"] += 1
            if key:
                real[f"key:{text(key)}"] += 1
        for name, most in MOST.items():
            assert real[name] == self.store.redis.scard(keys.slots(name)) <= most, name


@pytest.mark.parametrize("seed", range(6))
def test_no_limit_is_exceeded_and_no_task_forgotten(store: Store, limits: Limits, seed: int) -> None:
    for name, concurrency in MOST.items():
        limits.put(name, read_limit({"concurrency": concurrency}))
    limits.put("type:c", read_limit({"rate": "20/s", "burst": 2}))
    turmoil = Turmoil(store, Random(seed))
    for _ in range(150):
        turmoil.anything()
        turmoil.check()
    for _ in range(2000):
        claim(store, 20)
        turmoil.check()
        for task in turmoil.running():
            end(store, task)
        turmoil.move_due()
        if not turmoil.unended():
            break
    assert turmoil.unended() == 0
    claim(store)
    for left in ("throttled:*", "pending:*", "wait-queue*", "slots:*", "limits:due", "fair"):
        assert store.redis.keys(f"{keys.prefix}firmq:{left}") == [], left
    assert store.redis.keys(keys.rq_deferred("*")) == []
