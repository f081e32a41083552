"""The short script for one task: each of its ways stores the same."""

from __future__ import annotations

from typing import Any

import pytest
from redis import Redis

from firmq.shared.domain.task import NewTask
from firmq.shared.stores.queues import Queues, submit_arguments
from tests.support.keys import keys
from tests.support.store import WEIGHTS, Store

TASK = NewTask(id="t1", type="noop", data='{"a":1}', queue="normal")


def everything(redis: Redis) -> dict[Any, Any]:
    return {key: redis.dump(key) for key in redis.scan_iter()}


@pytest.mark.parametrize("concurrent", [False, True], ids=["serial", "concurrent"])
def test_all_ways_store_the_same(store: Store, concurrent: bool) -> None:
    stored = []
    arguments = submit_arguments(TASK)
    ways = (
        lambda: Queues(store.scripts, WEIGHTS).submit([TASK]),
        lambda: Queues(store.scripts, WEIGHTS, max_length=100).submit([TASK]),
        lambda: store.scripts.call("submit", 0, *arguments),
    )
    for submit in ways:
        store.redis.flushall()
        if concurrent:
            store.redis.sadd(keys.CONCURRENT_TYPES, "noop")
        submit()
        stored.append(everything(store.redis))
    assert stored[0] == stored[1]
    for each in stored:
        del each[keys.pending("normal").encode()]  # submit.lua counts the tasks of one step in its scores
    assert stored[1] == stored[2]
    lane = "normal+" if concurrent else "normal"
    assert store.redis.lrange(keys.rq_queue(lane), 0, -1) == [b"t1"]


def test_a_repetition_stores_nothing(store: Store) -> None:
    store.queues.submit([TASK])
    before = everything(store.redis)
    [again] = store.queues.submit([TASK])
    assert again.state == "pending"
    assert everything(store.redis) == before


def test_a_limit_of_the_type_takes_the_long_way(store: Store) -> None:
    store.redis.hset(keys.LIMITS, "type:noop", '{"concurrency": 1}')
    assert store.scripts.call("submit_one", 0, *submit_arguments(TASK)[:-1]) is None
    assert not store.redis.exists(keys.rq_job("t1"))
