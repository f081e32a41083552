"""The two lanes of a queue: an entry is in the lane of its type, on each way into the queue."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta

import pytest

from firmq.shared.domain.lock import NO_LOCK
from firmq.shared.redis.client import text
from firmq.shared.stores import maintenance
from firmq.shared.stores.dead_letters import requeue
from firmq.shared.stores.task_types import TaskType, TaskTypes
from firmq.worker.housekeeping.jobs.queue_entries import without_entry
from tests.support.announcing import announce
from tests.support.attempt_ends import claiming
from tests.support.keys import keys
from tests.support.limiting import submit
from tests.support.store import LEASE, SECOND, Store

SERIAL, NAP = TaskType(name="serial", schema={}), TaskType(name="nap", schema={}, concurrent=True)
LANES = ("normal", "normal+")


def entries(store: Store, lane: str) -> list[str]:
    return [text(each) for each in store.redis.lrange(keys.rq_queue(lane), 0, -1)]


def claim(store: Store, lane: str, token: str, count: int = 10) -> list[str]:
    reply = store.scripts.call("claim", *claiming("w", token, LEASE, count, 1 << 20, lane, count))
    return [text(row[0]) for row in reply[3]]


@pytest.fixture
def lanes(store: Store) -> Store:
    """A store with a serial and a concurrent type."""
    announce(store, "w", SERIAL, NAP)
    return store


# --- which types are concurrent ---


def test_the_worker_that_came_last_decides_and_it_may_come_with_types_that_are_known(lanes: Store) -> None:
    announce(lanes, "newer", SERIAL, replace(NAP, concurrent=False))
    first = submit(lanes, "nap")
    announce(lanes, "w", SERIAL, NAP)  # a heartbeat of a worker that was there before
    second = submit(lanes, "nap")
    announce(lanes, "older again", SERIAL, NAP)
    third = submit(lanes, "nap")
    assert (entries(lanes, "normal"), entries(lanes, "normal+")) == ([*first, *second], third)


def test_a_type_that_blocked_an_event_loop_comes_from_the_serial_lane(lanes: Store) -> None:
    announce(lanes, "w", SERIAL, NAP, blocking=("nap",))
    assert submit(lanes, "nap") == entries(lanes, "normal")


def test_the_published_entry_does_not_name_the_kind(lanes: Store) -> None:
    """A gateway of an earlier version refuses an entry with a field that it does not know."""
    stored = [json.loads(each) for each in lanes.redis.hvals(keys.TYPE_VERSIONS)]
    assert {name for entry in stored for name in entry} == {"name", "schema", "description", "timeout", "retry"}
    assert {each.name: each.concurrent for each in TaskTypes(lanes.redis).all()} == {"serial": False, "nap": True}


# --- ways into a queue ---


def test_submitted_tasks(lanes: Store) -> None:
    one, many = submit(lanes, "nap"), submit(lanes, "nap", 3)
    serial = submit(lanes, "serial", 2)
    assert (entries(lanes, "normal"), entries(lanes, "normal+")) == (serial, [*one, *many])


def test_promoted_tasks(lanes: Store) -> None:
    tasks = {kind: submit(lanes, kind, delay=timedelta(seconds=5)) for kind in ("serial", "nap")}
    lanes.clock.advance(timedelta(seconds=6))
    maintenance.promote(lanes.scripts, "normal", 10)
    assert (entries(lanes, "normal"), entries(lanes, "normal+")) == (tasks["serial"], tasks["nap"])


def test_released_tasks_change_to_the_lane_of_their_type(lanes: Store) -> None:
    lanes.redis.srem(keys.CONCURRENT_TYPES, "nap")
    [task] = submit(lanes, "nap")
    announce(lanes, "newer", SERIAL, NAP)
    assert claim(lanes, "normal", "t1") == [task]
    lanes.scripts.call("release", task, "t1", "")
    assert (entries(lanes, "normal"), entries(lanes, "normal+")) == ([], [task])


@pytest.mark.parametrize("by_hand", [False, True])
def test_restored_entries(lanes: Store, by_hand: bool) -> None:
    tasks = {kind: submit(lanes, kind, 3) for kind in ("serial", "nap")}
    lanes.redis.delete(*map(keys.rq_queue, LANES))
    lanes.clock.advance(timedelta(seconds=60))
    if by_hand:
        [lost] = without_entry(lanes.redis, "normal")
        assert maintenance.restore_entries(lanes.scripts, "normal", SECOND, lost, NO_LOCK) == 6
    else:
        assert maintenance.recover(lanes.scripts, "normal", SECOND, 100) == 6
    assert (entries(lanes, "normal"), entries(lanes, "normal+")) == (tasks["serial"], tasks["nap"])


# --- what looks at both ---


def test_entries_of_both_lanes_count_as_there(lanes: Store) -> None:
    for kind in ("serial", "nap"):
        submit(lanes, kind, 3)
    lanes.clock.advance(timedelta(seconds=60))
    assert maintenance.recover(lanes.scripts, "normal", SECOND, 100) == 0
    assert list(without_entry(lanes.redis, "normal", whole=True)) == []


def test_a_paused_queue_gives_nothing_from_either(lanes: Store) -> None:
    for kind in ("serial", "nap"):
        submit(lanes, kind)
    lanes.queues.pause("normal", "a test")
    assert [claim(lanes, lane, lane) for lane in LANES] == [[], []]
    lanes.queues.resume("normal")
    assert [len(claim(lanes, lane, f"{lane} again")) for lane in LANES] == [1, 1]


def test_a_limit_holds_for_both_lanes_together(lanes: Store) -> None:
    lanes.redis.hset(keys.LIMITS, "key:k", '{"concurrency": 1}')
    tasks = [submit(lanes, kind, limit_key="k")[0] for kind in ("serial", "nap")]
    started = [claim(lanes, lane, lane) for lane in LANES]
    assert started == [[tasks[0]], []]
    assert lanes.report(tasks[0], "completed", "normal") == 1
    assert claim(lanes, "normal+", "again") == [tasks[1]]


def test_a_retried_dead_letter_is_above_suspicion(lanes: Store) -> None:
    [task] = submit(lanes, "nap")
    assert claim(lanes, "normal+", "t1") == [task]
    lanes.redis.hset(keys.rq_job(task), "suspicions", 3)
    assert lanes.report(task, "failed", "t1") == 1
    requeue(lanes.scripts, [task])
    assert not lanes.redis.hexists(keys.rq_job(task), "suspicions")
