"""Paused types: their tasks wait without holding up others, and start when the pause ends."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest

from firmq.shared.domain.clock import instant
from firmq.shared.domain.limit import read_limit
from firmq.shared.stores.limits import Limits
from firmq.shared.stores.pauses import Pauses, of_type
from tests.support.attempt_ends import claiming
from tests.support.keys import keys
from tests.support.limiting import claim, end, running_under, submit, waits_aside
from tests.support.store import Store

SLOW = of_type("slow")


@pytest.fixture
def pauses(store: Store) -> Pauses:
    return store.queues.pauses


def test_tasks_of_a_paused_type_wait_and_others_pass(store: Store, pauses: Pauses) -> None:
    slow, other = submit(store, "slow", 2), submit(store, "fast")
    pauses.pause(SLOW, "the bank is down", "ann")
    assert claim(store) == other
    late = submit(store, "slow")
    assert claim(store) == []
    assert waits_aside(store) == 3
    assert pauses.types()["slow"]["by"] == "ann"
    pauses.resume(SLOW)
    assert claim(store) == [*slow, *late]
    assert pauses.types() == {}


def test_a_limit_of_the_type_holds_before_and_after(store: Store, pauses: Pauses, limits: Limits) -> None:
    limits.put(SLOW, read_limit({"concurrency": 2}))
    first, second, third, fourth = submit(store, "slow", 4)
    assert claim(store) == [first, second]
    pauses.pause(SLOW, "x")
    end(store, first)
    assert claim(store) == [], "its slot is free, and it is paused"
    pauses.resume(SLOW)
    assert claim(store) == [third]
    assert running_under(store, SLOW) == {second, third}
    end(store, second)
    assert claim(store) == [fourth]


def test_what_waits_for_another_limit_waits_for_the_pause_too(store: Store, pauses: Pauses, limits: Limits) -> None:
    limits.put("key:partner", read_limit({"concurrency": 1}))
    first, second = submit(store, "slow", 2, limit_key="partner")
    assert claim(store) == [first]
    pauses.pause(SLOW, "x")
    end(store, first)
    assert claim(store) == []
    pauses.resume(SLOW)
    assert claim(store) == [second]


def test_a_new_task_is_not_dispatched_to_an_idle_worker(store: Store, pauses: Pauses) -> None:
    pauses.pause(SLOW, "x")
    parked = store.scripts.call("claim", *claiming("w", "t", 10_000_000, 1, 1 << 20, "normal", 1, next_token="next"))
    assert parked[3] == []
    submit(store, "slow")
    assert store.claim(10, token="next") == []


def test_a_resumed_type_wakes_a_worker(store: Store, pauses: Pauses) -> None:
    pauses.pause(SLOW, "x")
    submit(store, "slow")
    claim(store)
    store.redis.delete(keys.wakeup("normal"))
    pauses.resume(SLOW)
    assert store.redis.llen(keys.wakeup("normal")) == 1


def test_a_pause_ends_at_its_time(store: Store, pauses: Pauses) -> None:
    until = instant(store.clock.now_us) + timedelta(minutes=5)
    pauses.pause(SLOW, "x", until=until)
    store.queues.pause("high", "lunch", until=until + timedelta(minutes=1))
    task = submit(store, "slow")
    assert claim(store) == []
    assert pauses.end_due() == []
    store.clock.advance(timedelta(minutes=5))
    assert pauses.end_due() == [SLOW]
    assert claim(store) == task
    store.clock.advance(timedelta(minutes=1))
    assert pauses.end_due() == ["high"]
    assert not any(each.paused for each in store.queues.overview())


def test_a_pause_that_was_changed_meanwhile_stays(store: Store, pauses: Pauses) -> None:
    pauses.pause(SLOW, "x", until=instant(store.clock.now_us) + timedelta(minutes=5))
    old = store.redis.hget(keys.PAUSED, SLOW) or b""
    pauses.pause(SLOW, "for longer")
    assert store.scripts.call("pause", SLOW, "", old) == 0
    assert pauses.types()["slow"]["reason"] == "for longer"


def test_an_end_in_the_past_is_refused(store: Store, pauses: Pauses) -> None:
    with pytest.raises(ValueError, match="has passed"):
        pauses.pause(SLOW, "x", until=instant(store.clock.now_us))


@pytest.mark.parametrize("stored", ["nonsense", "{}", json.dumps({"at": "2030-01-01T00:00:00Z", "until": "soon"})])
def test_a_corrupt_pause_pauses(store: Store, pauses: Pauses, stored: str) -> None:
    store.redis.hset(keys.PAUSED, SLOW, stored)
    submit(store, "slow")
    assert claim(store) == []
    assert "corrupt" in pauses.types()["slow"]["reason"]
    assert pauses.end_due() == []
