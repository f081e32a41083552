"""`firmq rq-return`: returns adopted jobs to RQ, so that `rq worker` runs the waiting ones.

Workers that run jobs of RQ programs must have stopped. A worker that shuts down cleanly returns jobs that did not start
by itself; this also returns jobs of workers that were killed: begun ones, those that ended and did not enqueue their
dependents yet, and those whose `on_failure` was to be called. It reads no arguments of jobs, so it needs none of the
programs' modules.
"""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from redis import Redis
from redis.exceptions import RedisError

from firmq.shared.config.settings import Settings, load_or_exit
from firmq.shared.domain.task import RQ_JOB_TYPE, TaskState
from firmq.shared.errors import FirmqError
from firmq.shared.redis.client import connect, text, translated
from firmq.shared.redis.scripts import Scripts
from firmq.shared.stores.queue_register import QueueRegister
from firmq.shared.stores.workers import Workers
from firmq.worker.features.rq.adopter import Adopter
from firmq.worker.features.rq.feature import rq_key_prefix
from firmq.worker.features.rq.key_prefix import name_rq_keys

WAIT = 30.0
"""Seconds to wait for workers to stop, and for the leases of killed ones to end."""
_PAUSE = 0.5
_PAGE = 500
_DIED = b'"died":true'
"""In the data of a task that is to call `on_failure`."""
_SAYS = {
    "waits": "{} back in front of RQ's queues",
    "dependents": "{} finished, and the dependents are enqueued now",
    "abandoned": "{} left to the maintenance of RQ's worker, which calls on_failure",
    "ended": "{} not RQ's worker's to run: finished, deleted, or waiting elsewhere in RQ",
}


class Unread:
    """A serializer that passes data through unchanged: RQ's code stores again what it has loaded."""

    @staticmethod
    def loads(data: bytes) -> bytes:
        return data

    @staticmethod
    def dumps(value: bytes) -> bytes:
        return value


class Adopted(NamedTuple):
    """A task that was made of a job."""

    task: str
    job: str
    enqueued_at: str


class WayBack:
    """Returns jobs to RQ; `done` counts the outcomes."""

    def __init__(self, scripts: Scripts) -> None:
        self.scripts = scripts
        self.redis: Redis = scripts.redis
        self.keys = scripts.keys
        self.done: Counter[str] = Counter()

    def run(self) -> int:
        """Returns all jobs that can be returned now, and the number of jobs that still run."""
        adopter = Adopter(self.scripts, {}, lambda: True)
        while adopter.settle():
            pass
        running = 0
        for adopted in (*self._follow_ups(), *self._adopted()):
            done = self._hand_over(adopted)
            if done == "running":
                running += 1
            else:
                self.done[done] += 1
        return running

    def unstick(self) -> None:
        """Returns jobs that killed RQ workers had taken and not begun, in queues that no RQ worker serves."""
        ours = Workers(self.redis).look()
        names = {each.name for each in (*ours.live, *ours.lost)}
        prefix, worker = self.keys.rq_queue(""), self.keys.rq_worker("")
        for key in map(text, self.redis.smembers(self.keys.RQ_QUEUES)):
            name = key.removeprefix(prefix)
            serving = [text(each) for each in self.redis.smembers(self.keys.rq_workers(name))]
            if any(each.removeprefix(worker) not in names and self.redis.exists(each) for each in serving):
                continue
            while returned := int(self.scripts.call("rq_unstick", name)):
                self.done["waits"] += returned

    def _adopted(self) -> list[Adopted]:
        """Returns the adopted tasks, the last one first: each goes to the front of its queue."""
        found = []
        for task, value in self.redis.hscan_iter(self.keys.RQ_ADOPTED):
            enqueued_at, _, job = text(value).partition(" ")
            queue = self.redis.hget(self.keys.rq_job(text(task)), "origin")
            place = self.redis.zscore(self.keys.pending(text(queue)), task) if queue else None
            found.append((place or 0.0, Adopted(text(task), job, enqueued_at)))
        return [each for _, each in sorted(found, reverse=True)]

    def _follow_ups(self) -> list[Adopted]:
        """Returns the tasks that were to call `on_failure` of a job whose processes died."""
        at, key = 0, self.keys.tasks_of_type(RQ_JOB_TYPE)
        found: list[Adopted] = []
        while tasks := [text(each) for each in self.redis.zrange(key, at, at + _PAGE - 1)]:
            at += _PAGE
            with self.redis.pipeline(transaction=False) as pipeline:
                for task in tasks:
                    pipeline.hmget(self.keys.rq_job(task), "state", "data")
                records = pipeline.execute()
            for task, (state, data) in zip(tasks, records, strict=True):
                if _DIED in (data or b"") and not TaskState(text(state)).ended:
                    _, _, (_, about), _ = json.loads(data)
                    found.append(Adopted(task, about["job"], about["enqueued_at"]))
        return found

    def _hand_over(self, adopted: Adopted) -> str:
        done = text(self.scripts.call("rq_hand_over", *adopted, ""))
        if done != "dependents":
            return done
        self._enqueue_dependents(adopted.job)
        self.scripts.call("rq_hand_over", *adopted, "1")
        return done

    def _enqueue_dependents(self, job_id: str) -> None:
        from rq import Queue  # after `name_rq_keys`
        from rq.job import Job

        job = Job.fetch(job_id, connection=self.redis, serializer=Unread)
        Queue(job.origin, connection=self.redis, serializer=Unread).enqueue_dependents(job)


def main(arguments: Sequence[str] = ()) -> int:
    """Returns all jobs to RQ, prints the outcomes, and returns 1 when some remain."""
    settings = load_or_exit()
    name_rq_keys(rq_key_prefix(settings))
    with connect(settings.stores[0].store_url, name="rq-return") as redis:
        way = WayBack(Scripts(redis))
        try:
            with translated():
                remains = _give_back(way, settings)
        except (FirmqError, RedisError, OSError) as error:
            remains = [f"{error}: run the command again"]
    for done, many in way.done.items():
        print(_SAYS[done].format(_jobs(many)))
    for each in remains:
        print(f"firmq rq-return: {each}", file=sys.stderr)
    if not remains:
        print("nothing is left: start `rq worker` for these queues, with --with-scheduler if jobs are scheduled")
    return 1 if remains else 0


def _give_back(way: WayBack, settings: Settings) -> list[str]:
    """Describes the remaining jobs."""
    until = time.monotonic() + WAIT
    while (remains := _obstacle(way, settings)) and time.monotonic() < until:
        time.sleep(_PAUSE)
    if remains:
        return [remains]
    way.unstick()
    return [
        f"{_jobs(many)} parked in queue {queue} of Firmq: firmq queues move-foreign {queue} --to QUEUE"
        for queue in QueueRegister.of(way.redis, settings).names()
        if (many := way.redis.zcard(way.keys.foreign(queue)))
    ]


def _obstacle(way: WayBack, settings: Settings) -> str:
    """Returns all jobs that can be returned now; returns why some are left, or ""."""
    live = [each.name for each in Workers(way.redis, settings.lease()).look().live if each.rq_queues != ()]
    if live:
        who, them = ("worker {} runs", "it") if len(live) == 1 else ("workers {} run", "them")
        return f"{who.format(', '.join(live))} jobs of RQ programs: stop {them} first (SIGTERM)"
    if running := way.run():
        return f"{_jobs(running)} still held by a lease that has not ended: run the command again later"
    return ""


def _jobs(many: int) -> str:
    return "1 job is" if many == 1 else f"{many} jobs are"
