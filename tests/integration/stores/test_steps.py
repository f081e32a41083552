"""Steps in the record of a task: stored once, by the holder of the lease, and kept as long as the record."""

from __future__ import annotations

import json

import pytest

from firmq.shared.domain.step import StepKind, encode_step, read_step
from firmq.shared.domain.task import TaskState
from firmq.shared.errors import LeaseEnded, TooManySteps
from firmq.shared.redis.client import text
from firmq.shared.stores.dead_letters import DeadLetters, requeue
from firmq.shared.stores.steps import RedisSteps
from tests.support.keys import keys
from tests.support.store import SECOND, Store


def record(value: bytes = b"1", kind: StepKind = StepKind.RESULT) -> bytes:
    return encode_step(kind, value, attempt=1, started_us=1, ended_us=2)


def steps(store: Store, task_id: str, token: str = "t1", most: int = 3, most_bytes: int = 1000) -> RedisSteps:
    return RedisSteps(store.scripts, task_id, token, most=most, most_bytes=most_bytes)


@pytest.fixture
def task(store: Store) -> str:
    """A task that runs."""
    [task_id] = store.submit()
    store.claim()
    return task_id


def test_a_step_is_stored_once(store: Store, task: str) -> None:
    stored = steps(store, task)
    assert stored.load().records == {}
    assert stored.save("a", record(b"1")) == record(b"1")
    before = store.snapshot()
    assert stored.save("a", record(b"2")) == record(b"1")
    assert store.snapshot() == before
    assert stored.load().records == {"a": record(b"1")}
    assert stored.load().now_us == store.scripts.clock.now_us  # type: ignore[attr-defined]  # the clock of tests


def test_a_lost_lease_can_neither_read_nor_write(store: Store, task: str) -> None:
    steps(store, task).save("a", record())
    store.clock.now_us += 11 * SECOND
    store.scripts.call("reap", 10, 3, "", "")
    before = store.snapshot()
    for again in (False, True):
        with pytest.raises(LeaseEnded):
            steps(store, task).load()
        with pytest.raises(LeaseEnded):
            steps(store, task).save("b", record())
        assert store.snapshot() == before
        if not again:
            assert store.claim(token="t2") == [task]
            before = store.snapshot()
    assert steps(store, task, "t2").load().records == {"a": record()}


def test_the_steps_of_a_task_are_bounded(store: Store, task: str) -> None:
    stored = steps(store, task)
    stored.save("a", record())
    with pytest.raises(
        TooManySteps, match=r"have \d+ bytes together with 'b', at most 1000 are allowed.*MAX_STEPS_BYTES"
    ):
        stored.save("b", record(b'"' + b"x" * 950 + b'"'))
    stored.save("b", record())
    stored.save("c", record())
    assert stored.save("a", record()) == record()
    with pytest.raises(TooManySteps, match=r"has 3 stored steps, the most that are allowed.*MAX_STEPS"):
        stored.save("d", record())
    assert sorted(stored.load().records) == ["a", "b", "c"]


def test_more_steps_than_a_command_takes_are_loaded(store: Store, task: str) -> None:
    stored = steps(store, task, most=10_000, most_bytes=1 << 20)
    with store.redis.pipeline(transaction=False) as pipeline:
        for number in range(2500):
            pipeline.hset(keys.rq_job(task), f"step:{number}", record(b"%d" % number))
        pipeline.execute()
    assert stored.load().records == {str(number): record(b"%d" % number) for number in range(2500)}


def test_a_requeued_dead_letter_continues_and_repeats_failed_steps(store: Store, task: str) -> None:
    error = record(b'{"type":"E","message":"m"}', StepKind.ERROR)
    steps(store, task).save("a", record())
    steps(store, task).save("b", error)
    store.report(task, "retrying")
    store.clock.now_us += SECOND
    store.scripts.call("promote", "normal", 10, "", "")
    store.claim(token="t2")
    assert steps(store, task, "t2").load().records == {"a": record(), "b": error}
    store.report(task, "failed", "t2")
    assert [each.done for each in requeue(store.scripts, [task])] == [True]
    store.claim(token="t3")
    assert steps(store, task, "t3").load().records == {"a": record()}
    assert steps(store, task, "t3").save("b", record(b"2")) == record(b"2")


def test_steps_are_removed_and_restored_with_their_task(store: Store, task: str) -> None:
    steps(store, task).save("a", record())
    store.report(task, "failed")
    DeadLetters(store.scripts, store.records).purge(task)
    assert not store.redis.exists(keys.rq_job(task))
    store.queues.restore(task)
    [found] = store.records.get(task).steps
    assert found == read_step("a", record())


def test_a_damaged_step_is_named_and_hides_nothing_else(store: Store, task: str) -> None:
    store.redis.hset(keys.rq_job(task), "step:a", "{")
    found = store.records.get(task)
    assert "the steps cannot be read" in (found.summary.corrupt or "")
    assert found.summary.state is TaskState.RUNNING


def test_a_full_redis_stores_the_steps_of_running_tasks(store: Store, task: str) -> None:
    store.redis.config_set("maxmemory", 1)
    try:
        steps(store, task).save("a", record())
    finally:
        store.redis.config_set("maxmemory", 0)
    assert steps(store, task).load().records == {"a": record()}


def checkpoint(value: bytes) -> bytes:
    return encode_step(StepKind.CHECKPOINT, value, attempt=1, started_us=1, ended_us=2)


def test_a_checkpoint_replaces_only_the_one_before(store: Store, task: str) -> None:
    stored = steps(store, task)
    assert stored.checkpoint("loop", checkpoint(b"1")) is False
    assert stored.checkpoint("loop", checkpoint(b"22")) is False
    assert stored.load().records == {"loop": checkpoint(b"22")}
    assert (store.redis.hget(keys.rq_job(task), "steps") or b"").split()[:2] == [b"1", b"%d" % len(checkpoint(b"22"))]
    assert stored.save("loop", record(b"1")) == checkpoint(b"22")
    assert stored.save("a", record(b"1")) == record(b"1")
    stored.checkpoint("a", checkpoint(b"1"))
    assert stored.load().records["a"] == record(b"1")


def test_a_checkpoint_learns_that_its_worker_drains(store: Store, task: str) -> None:
    stored, worker = steps(store, task), text(store.redis.hget(keys.rq_job(task), "worker_name"))
    for state, drains in (("busy", False), ("draining", True)):
        store.redis.set(keys.worker(worker), json.dumps({"name": worker, "state": state}))
        assert stored.checkpoint("loop", checkpoint(b"1")) is drains
