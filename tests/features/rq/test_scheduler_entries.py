"""The entries of rq-scheduler: enqueued as rq-scheduler does, exactly once, and nothing of the program is loaded."""

from __future__ import annotations

import pickle
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from rq import Queue
from rq.job import Job, JobStatus
from rq.serializers import JSONSerializer
from rq_scheduler import Scheduler

from firmq.shared.domain.lock import FencingToken
from firmq.shared.errors import LockLost
from firmq.shared.redis.client import text
from firmq.worker.features.rq.scheduler_entries import SchedulerEntries
from tests.support import rq_functions as shop
from tests.support.harness import System, wait_until
from tests.support.keys import keys
from tests.support.rq_functions import ALLOWED
from tests.support.rq_versions import VERSIONS, environment
from tests.support.store import Store

PAST = datetime(2020, 1, 1, tzinfo=UTC)
TO_COME = datetime.now(UTC) + timedelta(days=1)
_Program = Callable[[Any], object]

FORMS: dict[str, _Program] = {
    "enqueue_at": lambda to: to.enqueue_at(PAST, shop.add, 1, 2),
    "enqueue_in": lambda to: to.enqueue_in(timedelta(seconds=-5), shop.add, 1, 2),
    "to come": lambda to: to.enqueue_at(TO_COME, shop.add, 1, 2),
    "at front": lambda to: to.enqueue_at(PAST, shop.add, 1, 2, at_front=True),
    "interval": lambda to: to.schedule(PAST, shop.add, [1, 2], interval=600),
    "three times": lambda to: to.schedule(PAST, shop.add, [1, 2], interval=600, repeat=3),
    "once, with interval": lambda to: to.schedule(PAST, shop.add, [1, 2], interval=600, repeat=1),
    "no repetition": lambda to: to.schedule(PAST, shop.add, [1, 2], interval=600, repeat=0),
    "cron": lambda to: to.cron("0 3 * * *", shop.add, [1, 2]),
    "cron, local time": lambda to: to.cron("0 3 * * *", shop.add, [1, 2], use_local_timezone=True, repeat=2),
    "meta": lambda to: to.schedule(PAST, shop.add, [1, 2], interval=60, repeat=9, meta={"by": "me", "at": PAST}),
}


def entries(store: Store, *queues: str) -> SchedulerEntries:
    return SchedulerEntries(store.scripts, queues or ("imports",))


def make_due(redis: Any) -> None:
    for member in redis.zrange(keys.RQ_SCHEDULER_ENTRIES, 0, -1):
        if redis.zscore(keys.RQ_SCHEDULER_ENTRIES, member) != int(TO_COME.timestamp()):
            redis.zadd(keys.RQ_SCHEDULER_ENTRIES, {member: 1})


def seen(redis: Any) -> dict[str, Any]:
    """What an RQ program sees: the lists of queues, jobs by their fields, and entries by their times."""
    jobs = {}
    for key in redis.keys("rq:job:*"):
        job = Job.fetch(text(key).removeprefix("rq:job:"), connection=redis)
        jobs[job.id] = (job.get_status(), job.origin, job.meta, job.args, job.enqueued_at is None)
    due = {text(member): score for member, score in redis.zrange("rq:scheduler:scheduled_jobs", 0, -1, withscores=True)}
    return {
        "jobs": jobs,
        "due": due,
        "list": redis.lrange("rq:queue:imports", 0, -1),
        "queues": redis.smembers("rq:queues"),
    }


@pytest.mark.parametrize("form", FORMS)
def test_an_entry_is_enqueued_and_repeated_as_rq_scheduler_does(store: Store, form: str) -> None:
    scheduler = Scheduler("imports", connection=store.redis)
    FORMS[form](scheduler)
    copy: dict[Any, Any] = {key: store.redis.dump(key) for key in store.redis.keys("rq:*")}
    results = []
    for enqueue in (lambda: list(scheduler.enqueue_jobs()), lambda: entries(store).enqueue_due()):
        store.redis.delete(*store.redis.keys("rq:*"))
        for key, value in copy.items():
            store.redis.restore(key, 0, value)
        for _ in range(3):
            make_due(store.redis)
            enqueue()
        results.append(seen(store.redis))
    theirs, ours = (each.pop("due") for each in results)
    assert ours == pytest.approx(theirs, abs=30)
    assert results[0] == results[1]
    assert bool(results[1]["list"]) == (form != "to come")


def test_two_instances_enqueue_each_due_time_once(store: Store) -> None:
    scheduler = Scheduler("imports", connection=store.redis)
    for number in range(250):
        scheduler.schedule(PAST, shop.add, [number, 1], interval=3600)
    counts: list[int] = []

    def without_lock() -> None:
        counts.append(entries(store)._enqueue(FencingToken(), time.monotonic() + 60))

    threads = [threading.Thread(target=without_lock) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(counts) == 250
    assert store.redis.llen("rq:queue:imports") == 250


def test_nothing_of_the_program_is_loaded(store: Store) -> None:
    job = Job.create("shop.nowhere", args=[1], connection=store.redis, origin="imports", status=JobStatus.SCHEDULED)
    job.save()
    store.redis.hset(f"rq:job:{job.id}", "data", b"no pickle at all")
    store.redis.zadd("rq:scheduler:scheduled_jobs", {job.id: 1})
    assert entries(store).enqueue_due() == 1
    assert store.redis.lrange("rq:queue:imports", 0, -1) == [job.id.encode()]


def test_one_process_at_a_time_enqueues_entries(store: Store) -> None:
    scheduler = Scheduler("imports", connection=store.redis)
    scheduler.enqueue_at(PAST, shop.add, 1, 2)
    assert scheduler.acquire_lock()
    assert entries(store).enqueue_due() == 0
    scheduler.remove_lock()
    assert entries(store).enqueue_due() == 1
    assert scheduler.acquire_lock(), "the lock is given back"


def test_entries_of_other_queues_are_left_to_rq_scheduler(store: Store) -> None:
    for number in range(150):
        Scheduler("theirs", connection=store.redis).enqueue_at(PAST, shop.add, number, 2)
    mine = Scheduler("imports", connection=store.redis).enqueue_at(PAST + timedelta(days=1), shop.add, 1, 2)
    assert entries(store).enqueue_due() == 1
    assert store.redis.zcard("rq:scheduler:scheduled_jobs") == 150
    assert Queue("imports", connection=store.redis).job_ids == [mine.id]


@pytest.mark.parametrize(
    "meta",
    [{"queue_class_name": "shop.queues.Special"}, {"cron_string": "every full moon"}, {"interval": "often"}],
    ids=["a queue class", "no cron string", "no interval"],
)
def test_an_entry_that_rq_scheduler_cannot_repeat_is_left_and_named_once(
    store: Store, meta: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    scheduler = Scheduler("imports", connection=store.redis)
    left = scheduler.enqueue_at(PAST, shop.add, 1, 2, meta=meta)
    scheduler.enqueue_at(PAST + timedelta(days=1), shop.add, 1, 2)
    here = entries(store)
    assert [here.enqueue_due(), here.enqueue_due()] == [1, 0]
    assert [each.id for each in scheduler.get_jobs()] == [left.id]
    assert [left.id in each.message for each in caplog.records] == [True]


def test_a_pickle_that_names_a_function_is_not_executed(store: Store, tmp_path: Any) -> None:
    class Planted:
        def __reduce__(self) -> tuple[Any, ...]:
            return open, (str(tmp_path / "executed"), "w")

    job = Scheduler("imports", connection=store.redis).enqueue_at(PAST, shop.add, 1, 2)
    store.redis.hset(f"rq:job:{job.id}", "meta", pickle.dumps({"x": Planted()}))
    assert entries(store).enqueue_due() == 0
    assert not list(tmp_path.iterdir())


def test_an_entry_waits_for_the_jobs_that_it_depends_on(store: Store) -> None:
    parent = Job.create(shop.add, [1, 2], connection=store.redis, origin="imports", status=JobStatus.QUEUED)
    parent.save()
    scheduler = Scheduler("imports", connection=store.redis)
    scheduler.schedule(PAST, shop.add, [3, 4], depends_on=parent)
    assert entries(store).enqueue_due() == 0
    store.redis.hset(f"rq:job:{parent.id}", "status", "finished")
    assert entries(store).enqueue_due() == 1


def test_an_entry_whose_job_is_gone_is_removed(store: Store) -> None:
    store.redis.zadd("rq:scheduler:scheduled_jobs", {"gone": 1})
    assert entries(store).enqueue_due() == 0
    assert store.redis.zcard("rq:scheduler:scheduled_jobs") == 0


def test_a_json_entry_keeps_its_serializer(store: Store) -> None:
    job = Job.create(
        "tests.support.rq_functions.add", [1, 2], connection=store.redis, origin="imports", serializer=JSONSerializer
    )
    job.meta = {"interval": 60, "repeat": 5}
    job.save()
    store.redis.zadd("rq:scheduler:scheduled_jobs", {job.id: 1})
    assert entries(store).enqueue_due() == 1
    assert Job.fetch(job.id, connection=store.redis, serializer=JSONSerializer).meta["repeat"] == 4


def test_a_step_under_an_ended_lock_is_refused(store: Store) -> None:
    Scheduler("imports", connection=store.redis).enqueue_at(PAST, shop.add, 1, 2)
    with pytest.raises(LockLost):
        entries(store).enqueue_due(FencingToken("rq_scheduler", "of another"))
    assert not store.redis.exists("rq:queue:imports")


@pytest.mark.parametrize("version", VERSIONS)
def test_a_housekeeper_and_a_worker_run_the_entries_of_an_rq_program(system: System, version: str) -> None:
    system.environment |= environment(version)
    system.as_shipped = version != VERSIONS[-1]
    adopting = {"RQ_QUEUES": "imports", "RQ_ALLOW": ALLOWED, "RQ_PICKLE": "true"}
    system.start_worker(**adopting)
    system.start("housekeeper", RQ_QUEUES="imports", RQ_ALLOW=ALLOWED)
    job = Scheduler("imports", connection=system.redis).enqueue_in(timedelta(seconds=-1), shop.add, 1, 2)
    wait_until(lambda: job.get_status() == "finished", "the entry's job has run")
    assert job.return_value() == 3
