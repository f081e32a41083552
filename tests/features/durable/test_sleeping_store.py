"""A task that sleeps is scheduled: it holds nothing, and its sleep is over when it runs again."""

from __future__ import annotations

from datetime import timedelta

import pytest

from firmq.shared.domain.limit import Limit
from firmq.shared.domain.lock import NO_LOCK
from firmq.shared.domain.step import StepKind, encode_step
from firmq.shared.domain.task import BatchPlace, NewTask, TaskState, new_task_id
from firmq.shared.features.durable.store import DurableSteps
from firmq.shared.stores import maintenance
from firmq.shared.stores.batches import Batches, BatchTerms
from firmq.shared.stores.limits import Limits
from tests.support.attempt_ends import ended, report
from tests.support.keys import keys
from tests.support.store import SECOND, Store

HOUR = 3600 * SECOND


def steps(store: Store, task_id: str, token: str = "t1") -> DurableSteps:
    return DurableSteps(store.scripts, task_id, token, most=100, most_bytes=10_000)


def suspend(store: Store, task_id: str, token: str = "t1") -> int:
    """The handler sleeps for an hour."""
    until = store.clock.now_us + HOUR
    record = encode_step(StepKind.SLEEP, b"null", attempt=1, started_us=store.clock.now_us, ended_us=until)
    steps(store, task_id, token).save("pause", record)
    return report_sleep(store, task_id, token, until)


def report_sleep(store: Store, task_id: str, token: str, until: int) -> int:
    about = '{"outcome":"interrupted","error":{"type":"TaskSuspended","message":"sleeps"}}'
    [answer] = report(store.scripts, ended(task_id, token, "suspended", about, due_us=until, awaits="sleep pause"))
    return answer


def promote(store: Store) -> None:
    store.scripts.call("promote", "normal", 100, "", "")


def kind(store: Store, task_id: str, token: str) -> str:
    return steps(store, task_id, token).load().records["pause"].decode().split('"')[3]


@pytest.fixture
def task(store: Store) -> str:
    [task_id] = store.submit(expires_in=timedelta(minutes=5))
    store.claim()
    return task_id


def test_a_sleeping_task_is_scheduled_and_holds_no_lease(store: Store, task: str) -> None:
    assert suspend(store, task) == 1
    found = store.records.get(task)
    assert (found.summary.state, found.summary.awaits) == (TaskState.SCHEDULED, "pause")
    assert (found.summary.failures, found.summary.crashes) == (0, 0)
    assert found.attempts[0].outcome == "interrupted"
    assert store.redis.zcard(keys.LEASES) == store.redis.zcard(keys.rq_started("normal")) == 0
    assert report_sleep(store, task, "t1", store.clock.now_us + HOUR) == 1
    assert store.records.get(task) == found


def test_it_runs_again_at_its_time_and_has_slept(store: Store, task: str) -> None:
    suspend(store, task)
    store.clock.now_us += HOUR - 1
    promote(store)
    assert maintenance.expire(store.scripts, 10) == 0
    assert store.claim(token="t2") == []
    store.clock.now_us += 1
    promote(store)
    assert store.claim(token="t2") == [task]
    assert kind(store, task, "t2") == "slept"
    assert kind(store, task, "t2") == "slept"
    assert store.records.get(task).summary.awaits is None


def test_running_it_now_ends_its_sleep(store: Store, task: str) -> None:
    suspend(store, task)
    store.queues.run_now(task)
    assert store.claim(token="t2") == [task]
    assert kind(store, task, "t2") == "slept"


def test_an_attempt_that_has_not_ended_by_its_sleep_has_not_slept(store: Store, task: str) -> None:
    """Its worker died between storing the step and the report."""
    until = store.clock.now_us + HOUR
    record = encode_step(StepKind.SLEEP, b"null", attempt=1, started_us=1, ended_us=until)
    steps(store, task).save("pause", record)
    store.report(task, "interrupted")
    assert store.claim(token="t2") == [task]
    assert kind(store, task, "t2") == "sleep"


def test_a_request_to_cancel_overrides_a_sleep(store: Store, task: str) -> None:
    store.queues.cancel(task, "not needed")
    assert suspend(store, task) == 2
    assert store.state(task) is TaskState.CANCELLED


def test_a_sleeping_task_is_cancelled_and_restored(store: Store, task: str) -> None:
    suspend(store, task)
    store.queues.cancel(task, "not needed")
    assert store.state(task) is TaskState.CANCELLED
    store.queues.restore(task)
    found = store.records.get(task)
    assert (found.summary.state, found.summary.awaits) == (TaskState.SCHEDULED, "pause")
    store.clock.now_us += HOUR
    promote(store)
    assert store.claim(token="t2") == [task]


def test_a_lost_lease_cannot_suspend(store: Store, task: str) -> None:
    store.clock.now_us += 11 * SECOND
    store.scripts.call("reap", 10, 3, "", "")
    assert report_sleep(store, task, "t1", store.clock.now_us + HOUR) == 0
    assert store.state(task) is TaskState.PENDING


def test_a_sleeping_task_frees_its_limit_and_its_place_in_the_batch(store: Store) -> None:
    Limits(store.scripts).put("type:noop", Limit(concurrency=1))
    batches = Batches(store.scripts)
    batches.open("b", BatchTerms(max_running=1))
    first, second = (
        NewTask(id=new_task_id(), type="noop", data="null", queue="normal", batch=BatchPlace(batch_id="b", index=index))
        for index in range(2)
    )
    store.queues.submit([first, second])
    assert store.claim(want=2) == [first.id]
    suspend(store, first.id)
    assert store.claim(want=2, token="t2") == [second.id]
    counts = batches.get("b").counts
    assert (counts[TaskState.SCHEDULED], counts[TaskState.RUNNING]) == (1, 1)
    store.clock.now_us += HOUR
    promote(store)
    assert store.state(first.id) is TaskState.BLOCKED
    assert report(store.scripts, ended(second.id, "t2", "completed")) == [1]
    assert store.claim(want=2, token="t3") == [first.id]


def test_a_lost_index_of_sleeping_tasks_is_restored(store: Store, task: str) -> None:
    suspend(store, task)
    store.redis.delete(keys.scheduled("normal"))
    for _ in range(3):
        maintenance.check_consistency(store.scripts, ["high", "normal"], 10 * SECOND, 100, NO_LOCK)
    assert store.redis.zscore(keys.scheduled("normal"), task) == store.clock.now_us + HOUR
