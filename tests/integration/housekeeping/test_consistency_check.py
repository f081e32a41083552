"""Recovery's walk over all tasks: whatever somebody broke by hand, every task is in one place again."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import timedelta

import pytest
from redis import Redis

from firmq.shared.domain.clock import to_us
from firmq.shared.domain.lock import FencingToken, Lock
from firmq.shared.domain.task import BatchPlace, NewTask, TaskState, new_task_id
from firmq.shared.redis.client import text
from firmq.shared.stores import maintenance
from firmq.shared.stores.batches import Batches, BatchTerms
from firmq.shared.stores.locks import HeldLock, NoLocks
from firmq.shared.stores.queue_register import QueueRegister
from firmq.shared.stores.queues import Queues, cancel
from firmq.shared.stores.tasks import Records
from firmq.worker.housekeeping.jobs.recovery import Recovery
from tests.integration.housekeeping.conftest import Machine
from tests.support.attempt_ends import claiming
from tests.support.keys import keys

QUEUES = {"high": 2, "normal": 1}
LEASE = to_us(timedelta(seconds=30))


def submit(machine: Machine, count: int = 1, queue: str = "normal", **options: object) -> list[str]:
    tasks = [NewTask(id=new_task_id(), type="noop", data="null", queue=queue, **options) for _ in range(count)]  # type: ignore[arg-type]
    Queues(machine.scripts, QUEUES).submit(tasks)
    return [task.id for task in tasks]


def submit_slowly(machine: Machine, hundreds: int) -> list[str]:
    ids = []
    for _ in range(hundreds):
        ids += submit(machine, 100)
        machine.advance(1)
    return ids


def claim(machine: Machine, count: int) -> list[str]:
    quotas = ("high", count, "normal", count)
    reply = machine.scripts.call("claim", *claiming("w1", new_task_id(), LEASE, count, 1 << 20, *quotas))
    return [row[0].decode() for row in reply[3]]


def check_consistency(machine: Machine) -> dict[str, int]:
    """One whole walk; what it found."""
    found: dict[str, int] = {}
    for _ in range(30):
        _, wrong = maintenance.check_consistency(machine.scripts, list(QUEUES), LEASE, 1000, FencingToken())
        for what, count in wrong.items():
            found[what] = found.get(what, 0) + count
    return found


def counts(machine: Machine) -> dict[TaskState, int]:
    return {state: count for state, count in Records(machine.scripts, list(QUEUES)).counts().items() if count}


def test_a_sound_system_is_left_as_it_is(machine: Machine) -> None:
    submit(machine, 30)
    submit(machine, 5, delay=timedelta(seconds=60))
    submit(machine, 5, expires_in=timedelta(seconds=60))
    claim(machine, 10)
    cancel(machine.scripts, submit(machine)[0], "unwanted")
    before = counts(machine)
    assert check_consistency(machine) == {}
    assert counts(machine) == before


@pytest.mark.parametrize(
    "delete",
    [
        keys.pending("normal"),
        keys.scheduled("normal"),
        keys.LEASES,
        keys.ended("cancelled"),
        keys.TASKS,
        keys.tasks_of_type("noop"),
    ],
)
def test_an_index_deleted_by_hand_is_rebuilt(machine: Machine, delete: str) -> None:
    submit(machine, 20)
    submit(machine, 7, delay=timedelta(seconds=60))
    claim(machine, 5)
    cancel(machine.scripts, submit(machine)[0], "unwanted")
    before = {
        key: set(machine.redis.zrange(key, 0, -1))
        for key in map(text, machine.redis.keys(f"{keys.prefix}firmq:*"))
        if machine.redis.type(key) == b"zset"
    }
    machine.redis.delete(delete)
    check_consistency(machine)
    assert set(machine.redis.zrange(delete, 0, -1)) == before[delete]
    assert check_consistency(machine) == {}


def test_a_pending_task_put_back_has_a_ticket(machine: Machine) -> None:
    ids = submit(machine, 3)
    machine.redis.delete(keys.pending("normal"), keys.rq_queue("normal"))
    assert check_consistency(machine)["nowhere"] == 3
    assert sorted(claim(machine, 10)) == sorted(ids)


@pytest.mark.parametrize("score", [math.inf, -math.inf, 1e300])
def test_a_place_that_is_not_the_moment_of_the_record_is_put_right(machine: Machine, score: float) -> None:
    [later] = submit(machine, 1, delay=timedelta(seconds=60))
    due = machine.redis.zscore(keys.scheduled("normal"), later)
    [running] = submit(machine)
    assert claim(machine, 1) == [running]
    [waiting] = submit(machine)
    for index, task_id in (
        (keys.scheduled("normal"), later),
        (keys.LEASES, running),
        (keys.pending("normal"), waiting),
    ):
        machine.redis.zadd(index, {task_id: score})
    assert check_consistency(machine) == {"misplaced": 3}
    assert machine.redis.zscore(keys.scheduled("normal"), later) == due
    assert machine.redis.zscore(keys.LEASES, running) == machine.clock.now_us + LEASE
    assert machine.redis.zscore(keys.pending("normal"), waiting) == machine.clock.now_us
    assert check_consistency(machine) == {}


def test_a_task_whose_place_was_moved_starts_when_its_record_says(machine: Machine) -> None:
    [later] = submit(machine, 1, delay=timedelta(seconds=60))
    due = machine.redis.zscore(keys.scheduled("normal"), later)
    machine.redis.zadd(keys.scheduled("normal"), {later: (due or 0) + 1_000_000})
    assert check_consistency(machine) == {"misplaced": 1}
    assert machine.redis.zscore(keys.scheduled("normal"), later) == due


def test_a_task_in_two_places_stays_where_its_record_says(machine: Machine) -> None:
    [task_id] = submit(machine, 1, delay=timedelta(seconds=60))
    machine.redis.zadd(keys.pending("normal"), {task_id: 1})
    machine.redis.zadd(keys.ended("completed"), {task_id: 1})
    assert check_consistency(machine) == {"in_two": 2}
    assert counts(machine) == {TaskState.SCHEDULED: 1}


def test_a_scheduled_and_retrying_task_keeps_its_place_in_rqs_registry(machine: Machine) -> None:
    [task_id] = submit(machine, 1, delay=timedelta(seconds=60))
    machine.redis.zadd(keys.retrying("normal"), {task_id: 1})
    check_consistency(machine)
    assert machine.redis.zscore(keys.rq_scheduled("normal"), task_id) is not None


def test_an_entry_without_a_record_is_removed(machine: Machine) -> None:
    ids = submit(machine, 3)
    machine.redis.delete(keys.rq_job(ids[1]))
    machine.redis.zadd(keys.scheduled("high"), {"ghost": 1})
    assert check_consistency(machine)["without_record"] == 2
    assert counts(machine) == {TaskState.PENDING: 2}
    assert check_consistency(machine) == {}


def test_a_record_that_no_list_knows_is_found_again(machine: Machine) -> None:
    [task_id] = submit(machine)
    for key in (keys.TASKS, keys.pending("normal"), keys.tasks_of_type("noop"), keys.rq_queue("normal")):
        machine.redis.delete(key)
    check_consistency(machine)
    assert claim(machine, 5) == [task_id]


def test_a_record_without_a_state_becomes_a_dead_letter(machine: Machine) -> None:
    [task_id] = submit(machine)
    machine.redis.hset(keys.rq_job(task_id), "state", "dreaming")
    assert check_consistency(machine)["unreadable"] == 1
    assert counts(machine) == {TaskState.FAILED: 1}


@pytest.mark.parametrize(("field", "value"), [("state", "dreaming"), ("state", None), ("origin", None)])
def test_a_batch_ends_although_a_record_is_corrupt(machine: Machine, field: str, value: str | None) -> None:
    batches, then = Batches(machine.scripts), new_task_id()
    batches.open("b", BatchTerms(max_running=1, then=then))
    Queues(machine.scripts, QUEUES).submit(
        [NewTask(id=then, type="noop", data="null", queue="normal", after_batch="b")]
    )
    first, second = (submit(machine, batch=BatchPlace(batch_id="b", index=at))[0] for at in range(2))
    batches.close("b")
    if value is None:
        machine.redis.hdel(keys.rq_job(first), field)
    else:
        machine.redis.hset(keys.rq_job(first), field, value)
    assert check_consistency(machine)["unreadable"] == 1
    assert claim(machine, 5) == [second]
    cancel(machine.scripts, second, "enough")
    machine.redis.zadd(keys.LEASES, {second: 1})
    maintenance.reap(machine.scripts, 5, 3)
    batch = batches.get("b")
    assert batch.status == "ended"
    assert {state: count for state, count in batch.counts.items() if count} == {
        TaskState.FAILED: 1,
        TaskState.CANCELLED: 1,
    }
    assert claim(machine, 5) == [then]


def test_jobs_of_others_in_the_same_redis_are_left_alone(machine: Machine) -> None:
    machine.redis.hset(keys.rq_job("stranger"), mapping={"data": "x", "status": "queued"})
    assert check_consistency(machine) == {}
    assert machine.redis.hgetall(keys.rq_job("stranger")) == {b"data": b"x", b"status": b"queued"}


def test_the_check_continues_where_it_stopped_in_bounded_rounds(machine: Machine) -> None:
    submit(machine, 500)
    looked = [
        maintenance.check_consistency(machine.scripts, list(QUEUES), LEASE, 100, FencingToken())[0] for _ in range(4)
    ]
    assert looked == [100] * 4
    cursor = machine.redis.hgetall(keys.RECOVERY_CURSOR)
    assert cursor[b"source"] == keys.TASKS.encode()


def recovery(machine: Machine) -> tuple[Recovery, HeldLock]:
    held = NoLocks().acquire(Lock(name="recovery", at_most=timedelta(seconds=30)))
    assert held is not None
    return Recovery(machine.scripts, list(QUEUES), timedelta(seconds=1), timedelta(seconds=10)), held


def test_a_list_that_was_deleted_is_made_anew_in_one_round_in_its_order(machine: Machine) -> None:
    job, held = recovery(machine)
    ids = submit_slowly(machine, 30)
    machine.redis.delete(keys.rq_queue("normal"))
    machine.advance(60)
    ids += submit_slowly(machine, 6)
    assert job.run(held).done == 3000
    tickets = list(map(text, machine.redis.lrange(keys.rq_queue("normal"), 0, -1)))
    since = [each or 0.0 for each in machine.redis.zmscore(keys.pending("normal"), tickets)]
    assert (sorted(tickets), sorted(since)) == (sorted(ids), since)
    assert job.run(held).done == 0


def test_tickets_lost_in_the_middle_of_a_long_list_are_found_in_one_round(machine: Machine) -> None:
    job, held = recovery(machine)
    ids = submit(machine, 3000)
    for each in ids[1000:1900:3]:
        machine.redis.lrem(keys.rq_queue("normal"), 0, each)
    machine.advance(60)
    assert job.run(held).done == 300
    assert sorted(claim(machine, 500) + [each for _ in range(9) for each in claim(machine, 500)]) == sorted(ids)


def test_lost_tickets_are_found_in_one_round_also_among_as_many_that_lead_nowhere(machine: Machine) -> None:
    job, held = recovery(machine)
    ids = submit_slowly(machine, 30)
    for each in ids[2000:2500]:
        Queues(machine.scripts, QUEUES).cancel(each, "")
    machine.redis.ltrim(keys.rq_queue("normal"), 400, -1)  # a stranger took them
    machine.advance(60)
    assert job.run(held).done == 400
    assert job.run(held).done == 0


def test_a_young_task_without_a_ticket_is_left_alone_for_a_while(machine: Machine) -> None:
    job, held = recovery(machine)
    submit(machine, 700)
    machine.redis.delete(keys.rq_queue("normal"))
    machine.advance(5)
    assert job.run(held).done == 0
    machine.advance(6)
    assert job.run(held).done == 700


@pytest.mark.parametrize("name", [b"late", b"\xff\xfe"])
@pytest.mark.parametrize("key", [keys.rq_queue, keys.pending, keys.foreign])
def test_a_queue_whose_keys_are_corrupt_does_not_hold_up_the_repair_of_others(
    machine: Machine, name: bytes, key: Callable[[str], str]
) -> None:
    held = NoLocks().acquire(Lock(name="recovery", at_most=timedelta(seconds=30)))
    assert held is not None
    machine.redis.zadd(keys.QUEUES, {name: 1})  # and RQ's register, which may be corrupt too, does not list it
    register = QueueRegister(machine.redis, QUEUES)
    job = Recovery(machine.scripts, register, timedelta(seconds=1), timedelta(), tasks_per_run=500)
    machine.redis.set(key(text(name)), "of another type")
    ids = submit(machine, 5)
    machine.redis.delete(keys.rq_queue("normal"), keys.pending("normal"))
    machine.advance(1)
    job.run(held)
    assert machine.redis.type(key(text(name))) in (b"none", b"zset")
    assert sorted(claim(machine, 10)) == sorted(ids)


@pytest.mark.parametrize("broken", [keys.rq_queue("normal"), keys.pending("normal")])
def test_what_a_claim_takes_meanwhile_is_never_given_out_twice(redis_client: Redis, broken: str) -> None:
    machine = Machine(redis_client)
    ids = submit(machine, 300)
    taken: list[str] = []
    held = NoLocks().acquire(Lock(name="recovery", at_most=timedelta(seconds=30)))
    assert held is not None
    job = Recovery(machine.scripts, list(QUEUES), timedelta(seconds=1), timedelta(), tasks_per_run=500)
    act: list[Callable[[], object]] = [lambda: taken.extend(claim(machine, 40)), lambda: job.run(held)]
    for number in range(40):
        if number % 7 == 3:
            machine.redis.delete(broken)
        machine.advance(0.01)
        act[number % 2]()
    while got := claim(machine, 100):
        taken += got
    assert sorted(taken) == sorted(ids)
