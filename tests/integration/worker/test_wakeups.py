"""Bells: a ring reaches a worker that serves the queue, and no other."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest

from firmq.shared.domain.limit import Limit
from firmq.shared.domain.lock import FencingToken
from firmq.shared.domain.task import Conflict, TaskState
from firmq.shared.redis.client import text
from firmq.shared.stores import maintenance
from firmq.shared.stores.limits import Limits
from tests.integration.stores.test_unique import new
from tests.support.harness import System, wait_until
from tests.support.keys import keys
from tests.support.store import Store


def rings(store: Store) -> dict[str, int]:
    """What has rung since the last look."""
    found = {
        text(key).removeprefix(keys.WAKEUP): int(store.redis.llen(key)) for key in store.redis.keys(f"{keys.WAKEUP}*")
    }
    store.redis.delete(keys.NOTHING, *store.redis.keys(f"{keys.WAKEUP}*"))
    return found


def two_stored(store: Store) -> None:
    store.submit(2)


def one_stored(store: Store) -> None:
    store.submit()


def one_given_back(store: Store) -> None:
    store.submit()
    [task] = store.claim(token="x")
    rings(store)
    store.scripts.call("release", task, "x", "")


def one_reaped(store: Store) -> None:
    store.submit()
    store.claim()
    rings(store)
    store.clock.advance(timedelta(seconds=11))
    maintenance.reap(store.scripts, 10, 3)


def one_promoted(store: Store) -> None:
    store.submit(delay=timedelta(seconds=1))
    store.clock.advance(timedelta(seconds=2))
    maintenance.promote(store.scripts, "normal", 10)


def one_found_again(store: Store) -> None:
    store.submit()
    rings(store)
    store.redis.delete(keys.rq_queue("normal"))
    store.clock.advance(timedelta(seconds=60))
    maintenance.recover(store.scripts, "normal", 1, 10)


def one_brought_home(store: Store) -> None:
    store.submit()
    rings(store)
    store.redis.delete(keys.pending("normal"), keys.rq_queue("normal"))
    maintenance.check_consistency(store.scripts, ["normal"], 1_000_000, 1000, FencingToken())


def one_replaced(store: Store) -> None:
    store.queues.submit([new()])
    rings(store)
    store.queues.submit([new(on_conflict=Conflict.REPLACE)])


def a_slot_freed(store: Store) -> None:
    Limits(store.scripts).put("type:noop", Limit(concurrency=1))
    first, _ = store.submit(2)
    store.claim(2)
    rings(store)
    store.report(first, "completed")


def a_lost_slot_found(store: Store) -> None:
    Limits(store.scripts).put("type:noop", Limit(concurrency=1))
    first, _ = store.submit(2)
    store.claim(2)
    rings(store)
    store.redis.delete(keys.rq_job(first))
    maintenance.check_consistency(store.scripts, ["normal"], 1_000_000, 1000, FencingToken())


def a_limit_raised(store: Store) -> None:
    Limits(store.scripts).put("type:noop", Limit(concurrency=1))
    store.submit(2)
    store.claim(2)
    rings(store)
    Limits(store.scripts).put("type:noop", Limit(concurrency=2))


def a_queue_resumed(store: Store) -> None:
    store.queues.resume("normal")


@pytest.mark.parametrize(
    "happens",
    [
        two_stored,
        one_stored,
        one_given_back,
        one_reaped,
        one_promoted,
        one_found_again,
        one_brought_home,
        one_replaced,
        a_slot_freed,
        a_lost_slot_found,
        a_limit_raised,
        a_queue_resumed,
    ],
)
def test_only_workers_of_the_queue_are_woken(store: Store, happens: Callable[[Store], None]) -> None:
    happens(store)
    assert {each.rstrip("+") for each in rings(store)} == {":normal"}


def test_a_worker_of_other_queues_leaves_the_bell_to_those_who_serve_it(system: System) -> None:
    system.start_worker(WORKER_QUEUES="low", WORKER_EXECUTORS="1")
    wait_until(lambda: system.redis.zcard(keys.PARKED_CLAIMS) == 2, "both of its lanes are idle")
    system.submit_many([("noop", "null")] * 2)
    for own in system.submit_many([("noop", "null")] * 2, queue="low"):
        system.ended(own)
    assert system.redis.llen(keys.wakeup("normal")) == 2
    assert system.records.counts()[TaskState.PENDING] == 2
    system.start_worker(WORKER_QUEUES="normal", WORKER_EXECUTORS="1")
    system.all_ended()
