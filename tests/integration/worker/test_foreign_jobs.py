"""Jobs that RQ programs enqueue into queues of this system are kept and shown, and can be given to RQ's workers."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from datetime import timedelta

import pytest
from redis import Redis
from rq import Queue
from rq.job import Job, JobStatus

from firmq.shared.domain.task import TaskState
from firmq.shared.local.embedded_redis import EmbeddedRedis
from firmq.shared.redis.client import text
from firmq.shared.stores import maintenance
from tests.support.attempt_ends import claiming
from tests.support.harness import WEIGHTS, System, wait_until
from tests.support.keys import keys
from tests.support.store import LEASE, Store


def rq_enqueue(redis: Redis, queue: str) -> Job:
    """A job as stock RQ makes it: pickled and compressed."""
    return Queue(queue, connection=redis).enqueue("operator.add", 2, 3)


def records(redis: Redis, jobs: Mapping[str, Job]) -> dict[str, object]:
    return {job.id: redis.hgetall(keys.rq_job(job.id)) for job in jobs.values()}


def parked(redis: Redis, queue: str) -> list[str]:
    return [text(each) for each in redis.zrange(keys.foreign(queue), 0, -1)]


def test_foreign_jobs_are_kept_and_run_by_rq_after_a_move(system: System, redis_server: EmbeddedRedis) -> None:
    system.start_worker()
    system.start_housekeeper()
    jobs = {queue: rq_enqueue(system.redis, queue) for queue in WEIGHTS}
    before = records(system.redis, jobs)
    ours = [system.submit("noop", queue=queue) for queue in WEIGHTS]
    for each in ours:
        assert system.ended(each).summary.state is TaskState.COMPLETED
    for queue, job in jobs.items():
        wait_until(lambda queue=queue, job=job: parked(system.redis, queue) == [job.id], "the job is parked")  # type: ignore[misc]
        assert Job.fetch(job.id, connection=system.redis).get_status() == JobStatus.QUEUED
    assert records(system.redis, jobs) == before
    assert {each.name: each.foreign for each in system.queues.overview()} == dict.fromkeys(WEIGHTS, 1)
    wait_until(lambda: "queue high: 1 jobs of RQ programs are parked" in system.logs(), "the log says so")

    assert system.queues.move_foreign("high", "imports") == 1
    command = [sys.executable, "-m", "rq.cli", "worker", "--burst", "--url", redis_server.url, "imports"]
    subprocess.run(command, capture_output=True, timeout=60, check=True)
    assert Job.fetch(jobs["high"].id, connection=system.redis).return_value() == 5
    assert parked(system.redis, "high") == []
    assert parked(system.redis, "low") == [jobs["low"].id]


def test_what_is_behind_foreign_jobs_is_claimed_at_once_and_in_order(store: Store) -> None:
    jobs = [rq_enqueue(store.redis, "normal").id for _ in range(3)]
    first = store.submit(2)
    jobs += [rq_enqueue(store.redis, "normal").id]
    second = store.submit(2)
    assert store.claim(4) == [*first, *second]
    assert parked(store.redis, "normal") == jobs


def test_foreign_jobs_among_tasks_of_tenants_and_limits_are_parked(store: Store) -> None:
    job = rq_enqueue(store.redis, "normal").id
    [alone] = store.submit()
    [other] = store.submit(fair_key="a")
    assert sorted(store.claim(2)) == sorted([alone, other])
    assert parked(store.redis, "normal") == [job]


def test_recovery_parks_them_where_no_worker_takes_and_repairs_nothing_of_theirs(store: Store) -> None:
    job = rq_enqueue(store.redis, "normal")
    waiting = store.submit(2)
    before = store.redis.hgetall(keys.rq_job(job.id))
    store.clock.advance(timedelta(minutes=1))
    for _ in range(3):
        assert maintenance.recover(store.scripts, "normal", 0, 200) == 0
    assert parked(store.redis, "normal") == [job.id]
    assert store.redis.hgetall(keys.rq_job(job.id)) == before
    assert store.claim(2) == waiting


@pytest.mark.parametrize("lane", ["normal", "normal+"])
def test_foreign_jobs_in_either_lane_are_parked_with_or_without_a_worker(store: Store, lane: str) -> None:
    with_worker, without = rq_enqueue(store.redis, lane), rq_enqueue(store.redis, lane)
    store.redis.lrem(keys.rq_queue(lane), 0, without.id)
    store.scripts.call("claim", *claiming("w", "t1", LEASE, 1, 1 << 20, lane, 1))
    assert parked(store.redis, "normal") == [with_worker.id]
    store.redis.rpush(keys.rq_queue(lane), without.id)
    maintenance.recover(store.scripts, "normal", 0, 200)
    assert parked(store.redis, "normal") == [with_worker.id, without.id]


def test_a_job_whose_program_adds_a_field_named_as_ours_is_foreign(store: Store) -> None:
    job = rq_enqueue(store.redis, "normal")
    store.redis.hset(keys.rq_job(job.id), "state", "Bavaria")
    assert store.claim() == []
    assert parked(store.redis, "normal") == [job.id]


def test_entries_that_lead_nowhere_are_dropped_as_before(store: Store) -> None:
    [cancelled, waiting] = store.submit(2)
    store.queues.cancel(cancelled, "not needed")
    deleted = rq_enqueue(store.redis, "normal")
    store.redis.delete(keys.rq_job(deleted.id))
    store.redis.lpush(keys.rq_queue("normal"), deleted.id, "never-was")
    assert store.claim(5) == [waiting]
    assert parked(store.redis, "normal") == []
    assert store.redis.llen(keys.rq_queue("normal")) == 0


def test_a_parked_job_that_rq_cancels_or_deletes_is_forgotten(store: Store) -> None:
    jobs = [rq_enqueue(store.redis, "normal") for _ in range(3)]
    store.claim()
    jobs[0].cancel()
    jobs[1].delete()
    assert maintenance.recover(store.scripts, "normal", 0, 200) == 0
    assert parked(store.redis, "normal") == [jobs[2].id]
    jobs[2].cancel()
    assert store.queues.move_foreign("normal", "imports") == 0
    assert parked(store.redis, "normal") == []


def test_a_damaged_place_for_parked_jobs_loses_none(store: Store) -> None:
    job = rq_enqueue(store.redis, "normal")
    [waiting] = store.submit()
    store.redis.set(keys.foreign("normal"), "broken by hand")
    assert store.claim() == [waiting]
    assert parked(store.redis, "normal") == [job.id]


def test_many_are_moved_in_their_order(store: Store) -> None:
    queue = Queue("normal", connection=store.redis)
    jobs = [rq_enqueue(store.redis, "normal").id for _ in range(450)]
    while store.redis.llen(queue.key):
        store.claim()
    assert store.queues.move_foreign("normal", "imports") == 450
    assert Queue("imports", connection=store.redis).job_ids == jobs
