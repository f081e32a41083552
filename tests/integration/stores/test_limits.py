"""Limits and turns of tenants, script by script: who may start, who is throttled, and that nobody is forgotten."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from firmq.shared.config.settings import Settings
from firmq.shared.domain.limit import Limit, read_limit
from firmq.shared.stores import maintenance
from firmq.shared.stores.limits import Limits
from firmq.shared.stores.pauses import of_type
from firmq.worker.heartbeat import Heartbeat
from tests.support.attempt_ends import claiming
from tests.support.keys import keys
from tests.support.limiting import claim, end, running_under, submit, token_of, waits_aside
from tests.support.store import LEASE, SECOND, Store

# --- how many at once ---


def test_the_limit_holds_and_other_tasks_pass(store: Store, limits: Limits) -> None:
    limits.put("type:slow", read_limit({"concurrency": 2}))
    slow, fast = submit(store, "slow", 5), submit(store, "fast", 3)
    assert claim(store) == [*slow[:2], *fast]
    assert claim(store) == []
    assert waits_aside(store) == 3


def test_whose_slot_is_freed_the_next_in_line_takes(store: Store, limits: Limits) -> None:
    limits.put("type:slow", read_limit({"concurrency": 1}))
    first, second, third = submit(store, "slow", 3)
    claim(store)
    for kind, after in (("completed", second), ("failed", third)):
        end(store, first if after == second else second, kind)
        assert claim(store) == [after]


@pytest.mark.parametrize("kind", ["completed", "failed", "retrying", "crashed", "poisoned", "cancelled", "interrupted"])
def test_every_end_of_an_attempt_frees_its_slot(store: Store, limits: Limits, kind: str) -> None:
    limits.put("type:slow", read_limit({"concurrency": 1}))
    [task] = submit(store, "slow")
    claim(store)
    end(store, task, kind)
    assert running_under(store, "type:slow") == set()


def test_a_report_sent_twice_frees_one_slot(store: Store, limits: Limits) -> None:
    limits.put("type:slow", read_limit({"concurrency": 2}))
    first, second, *_ = submit(store, "slow", 5)
    claim(store)
    for _ in range(2):
        assert store.report(first, "completed", token_of(store, first)) == 1
    assert running_under(store, "type:slow") == {second}


def test_a_lost_lease_frees_its_slot_once(store: Store, limits: Limits) -> None:
    limits.put("type:slow", read_limit({"concurrency": 1}))
    first, _ = submit(store, "slow", 2)
    claim(store)
    store.clock.advance(timedelta(microseconds=LEASE + 1))
    assert len(maintenance.reap(store.scripts, 10, 3)) == 1
    assert maintenance.reap(store.scripts, 10, 3) == []
    assert claim(store) == [first], "it was first, and is first again"
    assert running_under(store, "type:slow") == {first}


def test_given_back_it_frees_its_slot_and_its_token(store: Store, limits: Limits) -> None:
    limits.put("type:slow", read_limit({"concurrency": 1, "rate": "1/h"}))
    first, _ = submit(store, "slow", 2)
    claim(store)
    store.scripts.call("release", first, token_of(store, first), 1)
    assert claim(store) == [first]


def test_a_token_that_is_given_back_is_the_next_ones_at_once(store: Store, limits: Limits) -> None:
    limits.put("type:mail", read_limit({"rate": "1/h"}))
    first, second = submit(store, "mail", 2)
    assert claim(store) == [first]
    store.queues.cancel(first, "it is not needed")
    store.scripts.call("release", first, token_of(store, first), 1)
    assert claim(store) == [second]


def test_a_key_is_limited_over_all_types(store: Store, limits: Limits) -> None:
    limits.put("key:partner", read_limit({"concurrency": 1}))
    one = submit(store, "a", limit_key="partner")
    submit(store, "b", limit_key="partner")
    other = submit(store, "b", limit_key="somebody-else")
    assert claim(store) == [*one, *other]


def test_who_is_under_two_limits_needs_both(store: Store, limits: Limits) -> None:
    limits.put("key:partner", read_limit({"concurrency": 1}))
    limits.put("type:a", read_limit({"concurrency": 2}))
    first, second, third = submit(store, "a", 3, limit_key="partner")
    [other] = submit(store, "a")
    assert claim(store) == [first, other]
    end(store, first)
    assert claim(store) == [second]
    end(store, other)
    assert claim(store) == [], "the key is taken"
    end(store, second)
    assert claim(store) == [third]


def test_a_claim_sent_again_takes_no_more_slots(store: Store, limits: Limits) -> None:
    limits.put("type:slow", read_limit({"concurrency": 2}))
    submit(store, "slow", 5)
    assert store.claim(10, token="same") == store.claim(10, token="same")
    assert len(running_under(store, "type:slow")) == 2


def test_whose_limit_is_free_starts_however_many_others_wait_in_a_queue_that_is_paused(
    store: Store, limits: Limits
) -> None:
    names = [*(f"key:c{number}" for number in range(400)), "key:mine"]
    for name in names:
        limits.put(name, read_limit({"concurrency": 0}))
    for name in names[:-1]:
        submit(store, "a", limit_key=name.removeprefix("key:"))
    [mine] = submit(store, "a", queue="high", limit_key="mine")
    while claim(store) or store.redis.llen(keys.rq_queue("normal")) or store.redis.llen(keys.rq_queue("high")):
        pass
    store.queues.pause("normal", "a look")
    for name in names:
        limits.put(name, read_limit({"concurrency": 5}))
    assert claim(store) == [mine]


def test_a_hundred_thousandth_in_line_costs_others_nothing(store: Store, limits: Limits) -> None:
    limits.put("type:slow", read_limit({"concurrency": 1}))
    submit(store, "slow", 2)
    claim(store)
    submit(store, "slow", 2000)
    assert store.redis.llen(keys.rq_queue("normal")) == 0, "they are throttled from the beginning"
    fast = submit(store, "fast", 1)
    assert claim(store, 1) == fast


# --- how many in a time ---


def test_tokens_come_steadily_and_the_claim_says_when(store: Store, limits: Limits) -> None:
    limits.put("type:mail", read_limit({"rate": "2/s", "burst": 1}))
    submit(store, "mail", 4)
    reply = store.scripts.call("claim", *claiming("w", "x", LEASE, 10, 1 << 20, "normal", 10))
    assert (len(reply[3]), reply[4]) == (1, SECOND // 2)
    store.clock.advance(timedelta(seconds=0.498))
    assert claim(store) == []
    assert len(claim(store)) == 1
    store.clock.advance(timedelta(seconds=10))
    assert len(claim(store)) == 1, "a pause saves up no more than the burst"


def test_over_a_minute_the_rate_is_met(store: Store, limits: Limits) -> None:
    limits.put("type:mail", read_limit({"rate": "10/s", "burst": 1}))
    submit(store, "mail", 800)
    started = 0
    for _ in range(600):
        started += len(claim(store))
        store.clock.advance(timedelta(seconds=0.1))
    assert started == 600


def test_the_bucket_goes_by_itself(store: Store, limits: Limits) -> None:
    limits.put("type:mail", read_limit({"rate": "1/m"}))
    submit(store, "mail")
    claim(store)
    assert 60_000 < store.redis.pttl(keys.bucket("type:mail")) <= 61_000


# --- changed while it runs ---


def test_who_runs_already_counts_when_a_limit_is_set(store: Store, limits: Limits) -> None:
    early = submit(store, "slow", 3)
    claim(store)
    limits.put("type:slow", read_limit({"concurrency": 2}))
    later = submit(store, "slow", 1)
    assert running_under(store, "type:slow") == set(early)
    for task in early[:2]:
        assert claim(store) == []
        end(store, task)
    assert claim(store) == later


def test_a_limit_is_raised_and_lowered_at_once(store: Store, limits: Limits) -> None:
    limits.put("type:slow", read_limit({"concurrency": 1}))
    submit(store, "slow", 10)
    assert len(claim(store)) == 1
    limits.put("type:slow", read_limit({"concurrency": 4}))
    assert len(claim(store)) == 3
    limits.put("type:slow", read_limit({"concurrency": 0}))
    for task in running_under(store, "type:slow"):
        end(store, task)
    assert claim(store) == []


def test_without_its_limit_a_line_is_taken_in_order(store: Store, limits: Limits) -> None:
    limits.put("type:slow", read_limit({"concurrency": 1}))
    tasks = submit(store, "slow", 5)
    claim(store)
    assert limits.delete("type:slow")
    assert claim(store) == tasks[1:]
    claim(store)
    for left in ("limits*", "slots:*", "wait-queue*", "throttled:*"):
        assert store.redis.keys(f"{keys.prefix}firmq:{left}") == []


def test_what_is_set_by_hand_stands_above_what_is_declared(store: Store, limits: Limits) -> None:
    declared = {"type:slow": read_limit({"concurrency": 5})}
    limits.declare(declared, {})
    limits.put("type:slow", read_limit({"concurrency": 1}), by="ann")
    limits.declare(declared, {"key:x": read_limit({"rate": "5/m"})})
    [of_key, of_type] = limits.all()
    assert (of_type.limit.concurrency, of_type.source, of_type.by) == (1, "api", "ann")
    assert (of_key.limit.rate, of_key.source) == ("5/m", "settings")
    limits.delete("type:slow")
    found = limits.get("type:slow")
    assert found
    assert (found.limit.concurrency, found.source) == (5, "handler")
    limits.declare({"type:slow": None}, {})
    assert limits.get("type:slow") is None


def test_of_two_versions_the_one_that_started_last_has_its_way(store: Store, limits: Limits) -> None:
    old, new = (
        {"type:slow": Limit(concurrency=5), "type:free": None},
        {"type:slow": None, "type:free": Limit(concurrency=1)},
    )
    assert limits.declare(old, {}) == {}
    assert limits.declare(new, {}) == {}
    for _ in range(2):
        assert limits.declare(old, {}, first=False) == {"type:slow": Limit(), "type:free": Limit(concurrency=1)}
        assert limits.declare(new, {}, first=False) == {}
        assert [(each.name, each.limit.concurrency) for each in limits.all()] == [("type:free", 1)]
    limits.delete("type:free")
    limits.declare(new, {}, first=False)
    assert limits.get("type:free"), "removed by hand, it comes back with a sign of life"
    store.redis.delete(keys.LIMITS, keys.LIMITS_DECLARED)
    limits.declare(new, {}, first=False)
    assert limits.get("type:free"), "it is there again when Redis came back empty"


def test_a_worker_whose_limits_do_not_hold_says_so_once(limits: Limits, caplog: pytest.LogCaptureFixture) -> None:
    def worker(concurrency: int) -> Heartbeat:
        engine: Any = SimpleNamespace(settings=Settings(task_limits={"type:slow": {"concurrency": concurrency}}))
        nobody: Any = None
        started = datetime.now(UTC)
        return Heartbeat(
            engine=engine,
            link=nobody,
            due=threading.Event(),
            name="w",
            workers=nobody,
            types=nobody,
            limits=limits,
            started_at=started,
        )

    older, newer = worker(5), worker(10)
    for _ in range(3):
        for each in (older, newer):
            each._declare([], first=not each.published)
            each.published = "a set of types"
    found = limits.get("type:slow")
    assert found
    assert found.limit.concurrency == 10
    assert [record.message for record in caplog.records] == [
        "limit type:slow: overridden by concurrency 10, declared by a worker that started later"
    ]


def test_a_limit_tells_who_runs_and_who_waits(store: Store, limits: Limits) -> None:
    limits.put("type:mail", read_limit({"concurrency": 2, "rate": "3/s", "burst": 3}))
    submit(store, "mail", 7, fair_key="a")
    claim(store)
    claim(store)
    [state] = limits.all()
    assert (state.running, state.waiting, state.next_at) == (2, 5, None)
    assert state.tokens == pytest.approx(1.0, abs=0.1)


# --- turns of tenants ---


def test_tenants_take_turns_within_a_priority(store: Store) -> None:
    ann, bob = submit(store, count=6, fair_key="ann"), submit(store, count=2, fair_key="bob")
    assert claim(store, 6) == [ann[0], bob[0], ann[1], bob[1], ann[2], ann[3]]


def test_who_comes_late_does_not_wait_behind_hundreds(store: Store) -> None:
    ann = submit(store, count=200, fair_key="ann")  # one step: the clock stands still between steps
    assert claim(store, 10) == ann[:10]
    [bob] = submit(store, fair_key="bob")
    assert bob in claim(store, 2)


def test_tasks_without_a_tenant_are_one_tenant_together(store: Store) -> None:
    ann, plain = submit(store, count=4, fair_key="ann"), submit(store, count=4)
    assert Counter(each in ann for each in claim(store, 4)) == {True: 2, False: 2}
    assert set(claim(store)) | set(ann[:2]) | set(plain[:2]) >= {*ann, *plain}


def test_a_higher_priority_is_no_matter_of_turns(store: Store) -> None:
    low = submit(store, count=2, fair_key="ann")
    high = submit(store, count=2, queue="high", fair_key="ann")
    reply = store.scripts.call("claim", *claiming("w", "x", LEASE, 4, 1 << 20, "high", 4, "normal", 0))
    assert [row[0].decode() for row in reply[3]] == [*high, *low]


def test_tenants_take_turns_in_the_line_of_a_limit_too(store: Store, limits: Limits) -> None:
    limits.put("type:slow", read_limit({"concurrency": 1}))
    ann, bob = submit(store, "slow", 3, fair_key="ann"), submit(store, "slow", 2, fair_key="bob")
    order = []
    for _ in range(5):
        [task] = claim(store)
        order.append("ann" if task in ann else "bob")
        end(store, task)
    assert order == ["ann", "bob", "ann", "bob", "ann"]
    assert bob


HOLDS: dict[str, tuple[Callable[[Store, Limits], object], Callable[[Store, Limits], object]]] = {
    "a pause": (
        lambda store, _: store.queues.pauses.pause(of_type("slow"), "a repair"),
        lambda store, _: store.queues.pauses.resume(of_type("slow")),
    ),
    "the limit of a type": (
        lambda _, limits: limits.put("type:slow", read_limit({"concurrency": 0})),
        lambda _, limits: limits.put("type:slow", read_limit({"concurrency": 1000})),
    ),
    "a removed limit": (
        lambda _, limits: limits.put("type:slow", read_limit({"concurrency": 0})),
        lambda _, limits: limits.delete("type:slow"),
    ),
    "limits of keys": (
        lambda _, limits: [limits.put(f"key:k{at}", read_limit({"concurrency": 0})) for at in range(5)],
        lambda _, limits: [limits.put(f"key:k{at}", read_limit({"concurrency": 500})) for at in range(5)],
    ),
}


def _retried(store: Store, limits: Limits) -> list[str]:
    """Tasks that come back into the list of the queue."""
    tasks = submit(store, "fast", 10, queue="normal", fair_key="b", delay=timedelta(seconds=1))
    store.clock.advance(timedelta(seconds=2))
    assert maintenance.promote(store.scripts, "normal", 100)[0] == 10
    return tasks


def _under_a_limit_of_their_own(store: Store, limits: Limits) -> list[str]:
    limits.put("type:other", read_limit({"concurrency": 0}))
    tasks = submit(store, "other", 10, fair_key="b")
    claim(store)
    limits.put("type:other", read_limit({"concurrency": 50}))
    return tasks


OTHERS: dict[str, Callable[[Store, Limits], list[str]]] = {
    "another tenant": lambda store, _: submit(store, "fast", 10, fair_key="b"),
    "tasks without a tenant": lambda store, _: submit(store, "fast", 10),
    "due tasks": _retried,
    "tasks under another limit": _under_a_limit_of_their_own,
}


@pytest.mark.parametrize("claims", [1, 6])
@pytest.mark.parametrize("other", OTHERS)
@pytest.mark.parametrize("hold", HOLDS)
def test_whose_tasks_were_held_back_does_not_delay_others_afterwards(
    store: Store, limits: Limits, hold: str, other: str, claims: int
) -> None:
    begin, end_of_it = HOLDS[hold]
    begin(store, limits)
    for at in range(5):
        submit(store, "slow", 60, fair_key="a", limit_key=f"k{at}")
    for _ in range(claims):
        assert claim(store) == []
    end_of_it(store, limits)
    assert len(claim(store, 2)) == 2, "alone, the tenant does not wait"
    others = OTHERS[other](store, limits)
    order = [task in others for want in (1, 2, 3, 1, 15) for task in claim(store, want)]
    assert order.index(True) <= 2
    assert sum(order) >= 9, "turns go on"


def test_a_tenant_whose_tasks_are_throttled_keeps_its_turn_for_the_others(store: Store, limits: Limits) -> None:
    limits.put("type:slow", read_limit({"concurrency": 0}))
    submit(store, "slow", 40, fair_key="a")
    fast = submit(store, "fast", 2, fair_key="a")
    busy = submit(store, "fast", 100, fair_key="b")
    order = [*claim(store, 3), *claim(store, 3)]
    assert set(fast) < set(order), "ones that are only moved take no turns"
    assert set(busy) & set(order)


def test_thousands_that_are_only_moved_do_not_stop_the_others(store: Store, limits: Limits) -> None:
    limits.put("type:slow", read_limit({"concurrency": 0}))
    submit(store, "slow", 2000, fair_key="a")
    others = submit(store, "fast", 5, fair_key="b")
    assert set(claim(store)) == set(others)


def test_tenants_in_the_list_are_met_by_the_first_claim(store: Store, limits: Limits) -> None:
    limits.put("key:unused", read_limit({"concurrency": 1}))
    tasks = submit(store, "fast", 6, fair_key="a", delay=timedelta(seconds=1))
    store.clock.advance(timedelta(seconds=2))
    maintenance.promote(store.scripts, "normal", 100)
    assert set(claim(store)) == set(tasks)


def test_without_waiting_tasks_no_turns_are_stored(store: Store) -> None:
    submit(store, count=3, fair_key="ann")
    submit(store, count=2)
    assert len(claim(store)) == 5
    claim(store)
    assert not store.redis.exists(
        keys.FAIR, keys.wait_queues("normal|"), keys.throttled("normal"), keys.rq_deferred("normal")
    )
