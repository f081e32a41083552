"""Shows that a running system leaves RQ's structures alone that are not its own, byte for byte.

Left out are the keys of rate limits: as RQ's own workers do, ours free slots that no job holds any more, of any queue.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from redis import Redis
from rq import Callback, Queue, Repeat, Retry, SimpleWorker
from rq.cron import CronScheduler
from rq.executions import Execution
from rq.group import Group
from rq.job import Dependency, JobStatus
from rq.registry import ReadyJobRegistry
from rq_scheduler import Scheduler

from firmq.shared.domain.task import TaskState
from firmq.shared.local.embedded_redis import EmbeddedRedis
from firmq.shared.redis.client import connect, text
from tests.labs.rq_jobs.program import ALLOWED
from tests.support import rq_functions as shop
from tests.support.harness import System, running_system, wait_until
from tests.support.keys import keys

THEIRS, ADOPTED, OURS = "theirs", "imports", "normal"
"""A queue of RQ's own, one of RQ_QUEUES, and one of Firmq that an RQ program uses by mistake."""
SHARED = {"rq:queues", "rq:workers", "rq:scheduler:scheduled_jobs"}
"""Sets that both sides add to: RQ's members have to stay."""
SETTINGS = {
    "RQ_QUEUES": ADOPTED,
    "RQ_ALLOW": f"{ALLOWED},tests.support.rq_functions.*",
    "RQ_PICKLE": "true",
    "RETENTION_COMPLETED": "1",
    "RETENTION_FAILED": "1",
    "WORKER_EXECUTORS": "2",
}
_A_DAY = 86400

Value = tuple[Any, int] | frozenset[str]


@dataclass
class Untouched:
    """One run: what was planted, and how much ran beside it."""

    seconds: float
    planted: dict[str, Value] = field(default_factory=dict)
    tasks: int = 0
    jobs: int = 0

    def run(self, folder: Path) -> list[str]:
        """Plants, lets a system work for the time, and returns what has changed since."""
        with (
            EmbeddedRedis(data_dir=folder / "redis") as server,
            connect(server.url, timeout=5) as redis,
            running_system(redis, server.url, folder) as system,
        ):
            plant(redis)
            self.planted = snapshot(redis)
            system.start_housekeeper(**SETTINGS)
            system.start_worker(**SETTINGS)
            end = time.monotonic() + self.seconds
            while time.monotonic() < end:
                self._work(system)
            wait_until(lambda: not redis.hlen(keys.RQ_ADOPTED), "all adopted jobs have ended")
            return changes(self.planted, redis)

    def _work(self, system: System) -> None:
        """Lets the system do a little of everything."""
        queue: Any = Queue(ADOPTED, connection=system.redis)
        jobs = [queue.enqueue(shop.add, 1, each) for each in range(20)]
        jobs += [queue.enqueue(shop.fail, retry=Retry(max=1)), queue.enqueue(shop.add, 1, 1, depends_on=jobs[0])]
        queue.enqueue_in(timedelta(seconds=1), shop.add, 1, 1, result_ttl=1)
        tasks = system.submit_many([("noop", "null")] * 20)
        cancelled = system.submit("noop", run_at=datetime.now(UTC) + timedelta(hours=1))
        system.queues.cancel(cancelled, "")
        for each in tasks[-1:]:
            wait_until(lambda each=each: system.records.state(each) in (TaskState.COMPLETED, None), "it is done")  # type: ignore[misc]
        wait_until(lambda: jobs[-1].get_status() == JobStatus.FINISHED, "the last job has finished")
        self.tasks += len(tasks) + 1
        self.jobs += len(jobs) + 1
        time.sleep(0.2)


def plant(redis: Redis) -> None:
    """Writes every kind of structure that RQ programs, workers and schedulers keep, through RQ's own code."""
    queue: Any = Queue(THEIRS, connection=redis)
    good = queue.enqueue(shop.add, 1, 1, on_success=Callback(shop.succeeded), meta={"order": 7})
    bad = queue.enqueue(shop.fail, failure_ttl=_A_DAY)
    queue.enqueue(shop.note, "rq:program:note", "x", repeat=Repeat(times=2, interval=3600))
    queue.enqueue(shop.fail, retry=Retry(max=2, interval=3600))
    worker: Any = SimpleWorker([queue], connection=redis, name="stock")
    worker.work(burst=True)
    worker.register_birth()
    waiting = queue.enqueue(shop.add, 1, 1, ttl=_A_DAY)
    queue.enqueue(shop.add, 1, 1, depends_on=Dependency([waiting, bad, good], allow_failure=True))
    queue.enqueue_in(timedelta(seconds=0), shop.add, 1, 1)
    queue.enqueue_in(timedelta(days=1), shop.add, 1, 1, job_id="unique-7", unique=True)
    queue.enqueue(shop.add, 1, 1).cancel()
    _plant_started(redis, queue)
    Group.create(connection=redis).enqueue_many(queue=queue, job_datas=[Queue.prepare_data(shop.add, (1, 2))])
    taken = queue.enqueue(shop.add, 1, 1, at_front=True)
    redis.lmove(queue.key, queue.intermediate_queue_key, "LEFT", "RIGHT")
    queue.intermediate_queue.set_first_seen(taken.id)
    queue.acquire_maintenance_lock()
    _plant_schedulers(redis)
    stranger: Any = Queue(OURS, connection=redis)
    stranger.enqueue(shop.add, 1, 1)
    for key in redis.keys("rq:*"):
        if redis.ttl(key) > 0:
            redis.expire(key, _A_DAY)


def _plant_started(redis: Redis, queue: Any) -> None:
    """Writes jobs that were started, by a live worker and by one that died, and one that is ready."""
    for ttl in (_A_DAY, 0):
        job = queue.enqueue(shop.sleep, 1)
        queue.remove(job)
        with redis.pipeline() as pipeline:
            Execution.create(job, ttl=ttl or 1, pipeline=pipeline)
            job.prepare_for_execution("stock", pipeline=pipeline)
            pipeline.execute()
    ready = queue.create_job(shop.add, (1, 1), status=JobStatus.DEFERRED)
    ready.save()
    with redis.pipeline() as pipeline:
        registry = ReadyJobRegistry(queue=queue)
        registry.register_jobs([ready], pipeline)
        pipeline.execute()


def _plant_schedulers(redis: Redis) -> None:
    redis.set(f"rq:scheduler-lock:{THEIRS}", "scheduler-1", ex=_A_DAY)
    redis.hset("rq:scheduler:scheduler-1", mapping={"name": "scheduler-1", "pid": "1"})
    scheduler = Scheduler(THEIRS, connection=redis, name="theirs")
    scheduler.register_birth()
    scheduler.cron("0 3 * * *", "shop.tasks.report")
    cron: Any = CronScheduler(connection=redis, name="host:1:2")
    cron.register(shop.add, queue_name=THEIRS, args=(1, 1), cron="0 3 * * *")
    cron.register_birth()


def snapshot(redis: Redis) -> dict[str, Value]:
    """Returns all keys of RQ with value and expiry, without the list of our own queue."""
    found: dict[str, Value] = {}
    for key in sorted(text(each) for each in redis.keys("rq:*")):
        if not key.startswith(("rq:rl", f"rq:queue:{OURS}")):
            found[key] = _value(redis, key)
    return found


def _value(redis: Redis, key: str) -> Value:
    if key in SHARED:
        members = redis.zrange(key, 0, -1) if redis.type(key) == b"zset" else redis.smembers(key)
        return frozenset(map(text, members))
    expires = redis.execute_command("PTTL", key)
    return _content(redis, key), -1 if expires < 0 else round(time.time() * 1000 + expires)


def _content(redis: Redis, key: str) -> object:
    """Returns the bytes of a key; of a hash or set without their order, which changes when Redis grows its table."""
    kind = redis.type(key)
    if kind == b"hash":
        return frozenset(redis.hgetall(key).items())
    return frozenset(redis.smembers(key)) if kind == b"set" else redis.dump(key)


def changes(planted: dict[str, Value], redis: Redis) -> list[str]:
    """Returns the keys that are not as they were planted, each with what changed."""
    found = []
    for key, was in planted.items():
        now = _value(redis, key)
        if isinstance(was, frozenset) and isinstance(now, frozenset):
            found += [f"{key} lost {each}" for each in sorted(was - now)]
        elif isinstance(was, tuple) and isinstance(now, tuple):
            if now[0] != was[0]:
                found.append(f"{key} is {'gone' if not now[0] else 'another value'}")
            elif abs(now[1] - was[1]) > 1000:
                found.append(f"{key} expires at another time")
    return found
