"""What RQ 3 brought: rate limits, jobs that are ready to be enqueued, and RQ_KEY_PREFIX."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from redis import Redis
from rq import Queue
from rq.job import Job, JobStatus
from rq.rate_limit import RateLimit, RateLimitRegistry
from rq.registry import ReadyJobRegistry

from firmq.shared.config.redis_address import completed
from firmq.shared.local.embedded_redis import EmbeddedRedis
from firmq.shared.redis.client import connect
from firmq.shared.redis.scripts import Scripts
from firmq.worker.features.rq.adopter import LIMITS_AT_ONCE, Adopter
from tests.support import rq_functions as shop
from tests.support.harness import ROOT, System, running_system, wait_until
from tests.support.keys import keys
from tests.support.rq_functions import ALLOWED
from tests.support.rq_versions import VERSIONS, environment
from tests.support.store import Store

ADOPTING = {"RQ_QUEUES": "imports", "RQ_ALLOW": ALLOWED, "RQ_PICKLE": "true"}
LIMIT = RateLimit(key="reports", concurrency=1)


def queue(redis: Redis) -> Any:
    return Queue("imports", connection=redis)


def adopter_on(store: Store) -> Adopter:
    return Adopter(store.scripts, {"imports": "normal"}, lambda: False)


def slots(store: Store) -> RateLimitRegistry:
    return RateLimitRegistry(LIMIT.key, store.redis)


def free(store: Store) -> None:
    store.scripts.call("rq_slots", LIMITS_AT_ONCE)


def test_due_jobs_take_free_slots_and_wait_for_others(store: Store) -> None:
    jobs = [queue(store.redis).enqueue_in(timedelta(seconds=1), shop.add, 1, 1, rate_limit=LIMIT) for _ in range(2)]
    store.clock.advance(timedelta(days=2))
    assert adopter_on(store).adopt() == 1
    statuses = sorted(str(job.get_status().value) for job in jobs)
    assert statuses == ["queued", "rate_limited"]
    [waiting] = slots(store).get_rate_limited_job_ids()
    [allowed] = slots(store).get_allowed_job_ids()
    assert {waiting, allowed} == {job.id for job in jobs}
    assert slots(store).concurrency == 1


def test_a_slot_is_free_when_its_job_has_ended_or_was_deleted_and_not_before(store: Store) -> None:
    jobs = [queue(store.redis).enqueue(shop.add, 1, 1, rate_limit=LIMIT) for _ in range(3)]
    free(store)
    assert slots(store).get_allowed_job_ids() == [jobs[0].id]
    jobs[0].set_status(JobStatus.FINISHED)
    store.redis.zadd(keys.rq_executions(jobs[0].id), {"e1": store.clock.now_us / 1e6 + 60})
    free(store)
    assert slots(store).get_allowed_job_ids() == [jobs[0].id], "one of its executions has not ended"
    store.redis.delete(keys.rq_executions(jobs[0].id))
    free(store)
    [second] = slots(store).get_allowed_job_ids()
    [third] = {jobs[1].id, jobs[2].id} - {second}  # in any order: both were enqueued at once
    assert queue(store.redis).job_ids == [jobs[0].id, second]
    store.redis.delete(keys.rq_job(second))
    free(store)
    last = next(each for each in jobs if each.id == third)
    assert last.get_status() == JobStatus.QUEUED
    last.set_status(JobStatus.FAILED)
    free(store)
    assert not store.redis.keys(f"{keys.prefix}rq:rl*")


def test_the_job_of_a_dead_process_frees_its_slot(store: Store) -> None:
    jobs = [queue(store.redis).enqueue(shop.add, 1, 1, rate_limit=LIMIT) for _ in range(2)]
    adopting = adopter_on(store)
    adopting.adopt()
    [task_id] = store.claim()
    store.report(task_id, "failed")
    adopting.settle()
    free(store)
    assert jobs[0].get_status() == JobStatus.FAILED
    assert jobs[1].get_status() == JobStatus.QUEUED


@pytest.mark.parametrize(
    "key", [keys.RQ_RATE_LIMITS, *map(keys.rq_rate_limit, ("reports", "reports:allowed", "reports:rate_limited"))]
)
def test_a_rate_limit_with_a_corrupt_key_stops_no_job(store: Store, key: str) -> None:
    later = timedelta(seconds=1)
    job = queue(store.redis).enqueue_in(later, shop.add, 1, 1, rate_limit=LIMIT)
    other = queue(store.redis).enqueue_in(later, shop.add, 1, 1)
    store.redis.delete(key)
    store.redis.set(key, "theirs")
    store.clock.advance(timedelta(days=2))
    assert adopter_on(store).adopt() >= 1
    free(store)
    assert other.get_status() == JobStatus.QUEUED
    assert job.get_status() in (JobStatus.QUEUED, JobStatus.RATE_LIMITED)
    assert store.redis.get(key) == b"theirs"


def test_jobs_that_a_dead_process_left_ready_are_enqueued(store: Store) -> None:
    jobs = [queue(store.redis).create_job(shop.add, (1, 1), status=JobStatus.DEFERRED) for _ in range(2)]
    for job in jobs:
        job.save()
    ready = ReadyJobRegistry(queue=queue(store.redis))
    with store.redis.pipeline() as pipeline:
        ready.register_jobs(jobs, pipeline)
        pipeline.execute()
    jobs[1].cancel()
    added = store.redis.zscore(ready.key, jobs[0].id)
    assert added is not None
    store.clock.now_us = int(added * 1e6) + 1_000_000
    assert adopter_on(store).adopt() == 0
    store.clock.advance(timedelta(seconds=10))
    assert adopter_on(store).adopt() == 1
    assert [job.get_status() for job in jobs] == [JobStatus.QUEUED, JobStatus.CANCELED]
    assert not store.redis.exists(ready.key)


# --- with a key prefix ---


@pytest.mark.parametrize("in_address", [False, True], ids=["KEY_PREFIX", "in the address"])
def test_programs_with_rq_key_prefix_use_a_system_with_that_key_prefix(
    redis_server: EmbeddedRedis, redis_client: Redis, tmp_path: Path, in_address: bool
) -> None:
    address = completed(redis_server.url, key_prefix="shop")
    given = (address, "") if in_address else (redis_server.url, "shop")
    with (
        connect(address, timeout=5) as redis,
        running_system(redis, given[0], tmp_path, KEY_PREFIX=given[1]) as system,
    ):
        worker = system.start_worker(**ADOPTING)
        code = (
            "import sys, time; from redis import Redis; from rq import Queue; q = Queue('imports', connection="
            "Redis.from_url(sys.argv[1], socket_timeout=None)); jobs = [q.enqueue('operator.add', 2, 3), q.enqueue("
            "'tests.support.rq_functions.with_meta')]; results = [j.latest_result(timeout=30) for j in jobs];"
            "print([r.type.name for r in results], results[0].return_value, results[1].return_value == jobs[1].id)"
        )
        said = subprocess.run(
            [sys.executable, "-c", code, redis_server.url],
            env={**os.environ, "RQ_KEY_PREFIX": "shop:rq"}, cwd=ROOT, capture_output=True, text=True, timeout=90,
            check=False,
        )  # fmt: skip
        assert said.stdout.strip() == "['SUCCESSFUL', 'SUCCESSFUL'] 5 True", said.stderr + system.logs()[-3000:]
        assert not redis_client.keys("rq:*")
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(60) == 0


def test_the_way_back_uses_the_key_prefix(redis_server: EmbeddedRedis, redis_client: Redis) -> None:
    program = {**os.environ, "RQ_KEY_PREFIX": "shop:rq", "KEY_PREFIX": "shop", "REDIS_URL": redis_server.url}
    code = (
        "import sys; from redis import Redis; from rq import Queue; q = Queue('imports', connection=Redis.from_url("
        "sys.argv[1])); q.enqueue('operator.add', 1, 1, job_id='p'); q.enqueue('operator.add', 2, 2, depends_on='p', "
        "job_id='c')"
    )
    subprocess.run([sys.executable, "-c", code, redis_server.url], env=program, cwd=ROOT, timeout=60, check=True)
    with connect(completed(redis_server.url, key_prefix="shop"), timeout=5) as redis:
        assert Adopter(Scripts(redis), {"imports": "normal"}, lambda: False).adopt() == 1
    redis_client.hset("shop:rq:job:p", "status", "finished")
    command = [sys.executable, "-m", "firmq", "rq-return"]
    del program["RQ_KEY_PREFIX"]
    done = subprocess.run(command, env=program, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert redis_client.lrange("shop:rq:queue:imports", 0, -1) == [b"c"]
    assert not redis_client.keys("rq:*")


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (
            {"RQ_KEY_PREFIX": "acme"},
            "RQ_KEY_PREFIX=acme: with KEY_PREFIX=(none), RQ's keys begin with rq: set RQ_KEY_PREFIX=rq here",
        ),
        (
            {"RQ_KEY_PREFIX": "acme:rq"},
            "RQ_KEY_PREFIX=acme:rq: with KEY_PREFIX=(none), RQ's keys begin with rq: set KEY_PREFIX=acme",
        ),
        ({"KEY_PREFIX": "shop", "RQ": VERSIONS[0]}, "RQ 2.12.0 has no RQ_KEY_PREFIX"),
    ],
)
def test_a_worker_that_would_read_other_keys_than_the_programs_does_not_start(
    system: System, redis_server: EmbeddedRedis, given: dict[str, str], sentence: str
) -> None:
    system.as_shipped, system.url = True, redis_server.url
    of_worker = environment(given.get("RQ", VERSIONS[1]))
    worker = system.start("worker", **ADOPTING, **given, **of_worker)
    assert worker.wait(60) == 2
    assert sentence in system.logs()


def test_the_shipped_rights_suffice_for_rate_limits(system: System) -> None:
    system.start_worker(**ADOPTING)
    system.redis.execute_command("ACL", "LOG", "RESET")
    jobs: list[Job] = [queue(system.redis).enqueue(shop.add, 1, 1, rate_limit=LIMIT) for _ in range(3)]
    parent = queue(system.redis).enqueue(shop.add, 1, 1)
    jobs += [queue(system.redis).enqueue(shop.add, 1, 1, rate_limit=LIMIT, depends_on=parent)]
    for job in jobs:
        wait_until(lambda job=job: job.get_status() == JobStatus.FINISHED, "the job is finished")  # type: ignore[misc]
    assert not system.redis.execute_command("ACL", "LOG")
