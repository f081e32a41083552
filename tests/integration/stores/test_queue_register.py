"""Queues exist from their first task on, within a bound, and until they have been empty for some time."""

from __future__ import annotations

from datetime import timedelta

import pytest
from redis import Redis
from rq import Queue

from firmq.shared.domain.limit import Limit
from firmq.shared.domain.lock import NO_LOCK
from firmq.shared.domain.task import NewTask, Parent, TaskState, Unique, new_task_id
from firmq.shared.redis.client import text
from firmq.shared.stores import maintenance
from firmq.shared.stores.dead_letters import requeue
from firmq.shared.stores.limits import Limits
from firmq.shared.stores.queue_register import FRESH, QueueRegister
from firmq.shared.stores.queues import Queues, SubmitOutcome
from firmq.shared.stores.task_types import types_waiting
from firmq.shared.stores.tasks import Filter
from tests.support.attempt_ends import claiming
from tests.support.keys import keys
from tests.support.store import WEIGHTS, Store, store_on

HOUR = timedelta(hours=1)
HOUR_US = 3_600_000_000


@pytest.fixture
def store(redis_client: Redis) -> Store:
    return store_on(redis_client)


def registered(store: Store) -> set[str]:
    return {text(name) for name in store.redis.zrange(keys.QUEUES, 0, -1)}


def prune(store: Store) -> int:
    return maintenance.queues_prune(store.scripts, WEIGHTS, HOUR_US)


def claim_from(store: Store, queue: str) -> tuple[str, str]:
    token = new_task_id()
    [row] = store.scripts.call("claim", *claiming("w", token, 10_000_000, 1, 1 << 20, queue, 1))[3]
    return row[0].decode(), token


def run_one(store: Store, queue: str, how: str) -> str:
    task, token = claim_from(store, queue)
    assert store.report(task, how, token, delay_us=24 * HOUR_US) == 1
    return task


def new(queue: str, **more: object) -> NewTask:
    return NewTask(id=new_task_id(), type="noop", data="null", queue=queue, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "more",
    [{}, {"delay": timedelta(hours=1)}, {"unique": Unique(key="k")}, {"fair_key": "tenant"}],
    ids=["plain", "scheduled", "unique", "of a tenant"],
)
def test_the_first_task_creates_its_queue(store: Store, more: dict[str, object]) -> None:
    [stored] = store.queues.submit([new("gpu.large-1", **more)])
    assert stored.stored
    assert registered(store) == {"gpu.large-1"}
    assert "gpu.large-1" in store.queues.register
    assert store.queues.overview()[-1].name == "gpu.large-1"


def test_a_queue_beyond_the_bound_is_refused_and_nothing_is_stored(store: Store) -> None:
    queues = Queues(store.scripts, WEIGHTS, max_queues=2)
    first, second, third, again = queues.submit([new(name) for name in ("a", "b", "c", "a")])
    assert (first.stored, second.stored, again.stored) == (True, True, True)
    assert third.outcome is SubmitOutcome.TOO_MANY_QUEUES
    [alone] = queues.submit([new("d")])
    assert alone.outcome is SubmitOutcome.TOO_MANY_QUEUES
    assert registered(store) == {"a", "b"}
    assert store.redis.zcard(keys.TASKS) == 3


def test_a_configured_queue_is_never_one_too_many(store: Store) -> None:
    queues = Queues(store.scripts, WEIGHTS, max_queues=1)
    assert all(each.stored for each in queues.submit([new("a"), new("high"), new("normal")]))
    [alone] = Queues(store.scripts, {"low": 1}, max_queues=1).submit([new("low")])
    assert alone.stored


def test_an_empty_queue_is_removed_after_its_time_and_a_configured_one_is_not(store: Store) -> None:
    store.submit(queue="gpu")
    store.submit(queue="normal")
    for queue in ("gpu", "normal"):
        run_one(store, queue, "completed")
    store.clock.advance(HOUR - timedelta(seconds=1))
    assert prune(store) == 0
    store.clock.advance(timedelta(seconds=2))
    assert prune(store) == 1
    assert registered(store) == {"normal"}
    assert store.redis.smembers(keys.RQ_QUEUES) == {keys.rq_queue("normal").encode()}
    assert not store.redis.exists(keys.wakeup("gpu"))


def test_a_queue_with_a_task_in_any_state_before_its_end_stays(store: Store) -> None:
    [parent] = store.submit(queue="parents")
    store.submit(queue="scheduled", delay=timedelta(days=1))
    store.submit(queue="blocked", parents=(Parent(task_id=parent),))
    store.submit(queue="tenants", fair_key="tenant")
    store.submit(queue="retrying")
    run_one(store, "retrying", "retrying")
    store.submit(queue="running")
    claim_from(store, "running")
    before = registered(store)
    assert before == {"parents", "scheduled", "blocked", "tenants", "retrying", "running"}
    store.clock.advance(2 * HOUR)
    assert prune(store) == 0
    assert registered(store) == before


def test_a_paused_queue_stays(store: Store) -> None:
    store.submit(queue="gpu")
    run_one(store, "gpu", "completed")
    store.queues.pause("gpu", "maintenance")
    store.clock.advance(2 * HOUR)
    assert prune(store) == 0


def test_a_dead_letter_brings_its_queue_back(store: Store) -> None:
    store.submit(queue="gpu")
    task = run_one(store, "gpu", "failed")
    store.clock.advance(2 * HOUR)
    assert prune(store) == 1
    requeue(store.scripts, [task])
    assert store.state(task) is TaskState.PENDING
    assert registered(store) == {"gpu"}


def test_the_consistency_check_restores_a_lost_register(store: Store) -> None:
    store.submit(queue="gpu")
    store.submit(queue="later", delay=HOUR)
    store.redis.delete(keys.QUEUES)
    prune(store)
    assert registered(store) == {"gpu"}  # it is in RQ's list of queues, too
    maintenance.check_consistency(store.scripts, store.queues.register, 10_000_000, 100, NO_LOCK)
    assert registered(store) == {"gpu", "later"}


def test_a_queue_of_an_rq_program_is_not_ours(store: Store) -> None:
    store.redis.sadd(keys.RQ_QUEUES, keys.rq_queue("emails"))
    store.redis.rpush(keys.rq_queue("emails"), "job")
    prune(store)
    assert "emails" not in store.queues.register


def test_tasks_of_new_queues_are_listed_and_counted(store: Store) -> None:
    store.records.queues = store.queues.register
    store.submit(queue="gpu")
    store.submit(queue="normal")
    assert store.records.counts()[TaskState.PENDING] == 2
    page = store.records.page(Filter(state=TaskState.PENDING), limit=10)
    assert {each.queue for each in page.items} == {"gpu", "normal"}


def test_the_names_are_read_once_a_second(store: Store) -> None:
    now = [0.0]
    register = QueueRegister(store.redis, WEIGHTS, monotonic=lambda: now[0])
    assert list(register) == ["high", "normal"]
    store.submit(queue="gpu")
    assert list(register) == ["high", "normal"]
    now[0] = FRESH
    assert list(register) == ["high", "normal", "gpu"]
    store.submit(queue="new")
    assert "new" in register


def test_a_corrupt_register_hides_no_configured_queue(store: Store) -> None:
    store.redis.set(keys.QUEUES, "not an index")
    assert list(QueueRegister(store.redis, WEIGHTS)) == ["high", "normal"]
    assert store.queues.submit([new("gpu")])[0].stored


def test_a_queue_of_rq_programs_with_jobs_that_run_or_wait_is_not_registered(store: Store) -> None:
    queue = Queue("rq-only", connection=store.redis)
    parent = queue.enqueue("operator.add", 1, 1)
    queue.enqueue("operator.add", 1, 1, depends_on=parent)
    store.redis.zadd(keys.rq_started("rq-only"), {f"{parent.id}:e": 4e9})
    prune(store)
    assert store.redis.zscore(keys.QUEUES, "rq-only") is None


def test_thousands_of_queues_of_rq_programs_fail_no_step(store: Store) -> None:
    store.redis.sadd(keys.RQ_QUEUES, *(keys.rq_queue(f"customer-{number}") for number in range(9000)))
    limits = Limits(store.scripts)
    limits.put("type:noop", Limit(concurrency=1))
    first, second = store.submit(2)
    [claimed] = store.claim(2)
    assert claimed == first
    assert prune(store) == 0
    assert types_waiting(store.scripts) == []
    assert [each.waiting for each in limits.all()] == [1]
    assert store.report(first, "completed") == 1
    assert store.records.get(first).summary.state is TaskState.COMPLETED
    assert store.redis.zcard(keys.LEASES) == 0
    assert store.claim(1, "t2") == [second]


def test_a_task_that_was_run_now_is_restored_to_run_now(store: Store) -> None:
    [task] = store.submit(delay=timedelta(hours=5))
    assert store.scripts.call("run_now", task) == [b"scheduled", 1]
    store.queues.cancel(task, "no")
    assert store.scripts.call("restore", task) == [b"cancelled", 1]
    assert store.records.get(task).summary.state is TaskState.PENDING
