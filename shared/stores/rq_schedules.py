"""rq-scheduler's own view of our schedules, and why the rest of it is not used.

rq-scheduler 0.14 keeps a sorted set of entries and an RQ job for each. Every schedule of ours is listed there too, so
its tools show them. Its loop is not used, because it

- pushes an entry and removes it in two steps: killed between them it runs twice;
- removes a periodic entry and adds it again in two steps: killed between them it never runs again;
- holds a lock that any late holder deletes, so that two schedulers enqueue everything twice;
- computes cron in the local time of its host, whatever the time zone of the entry;
- pushes RQ jobs, which pickle their arguments and have no record of ours.

`schedule_fire.lua` does all of it in one step instead. The class below is rq-scheduler's with JSON, whose changing
methods refuse and name what to use: a changed entry would only change the copy.
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any, NoReturn

from rq.job import Job
from rq.serializers import JSONSerializer
from rq_scheduler import Scheduler

from taskqueue.shared.redis.client import keys_of

if TYPE_CHECKING:
    from redis import Redis

SUFFIX = "-entry"


class JsonJob(Job):
    """RQ's job, read with JSON: a foreign entry is data, never code."""

    @classmethod
    def fetch(cls, id: str, connection: Redis | None = None, serializer: Any = None) -> Job:  # noqa: A002
        return super().fetch(id, connection, serializer=serializer or JSONSerializer)


class ScheduleEntries(Scheduler):  # type: ignore[misc]  # rq-scheduler comes without types
    """`get_jobs`, `count` and `in` work; every method that would change something refuses."""

    def __init__(self, connection: Redis) -> None:
        keys = keys_of(connection)
        job_class = type("PrefixedJob", (JsonJob,), {"redis_job_namespace_prefix": keys.rq_job("")})
        super().__init__(connection=connection, job_class=job_class)
        self.scheduled_jobs_key = keys.RQ_SCHEDULER_ENTRIES

    def by_name(self) -> dict[str, datetime]:
        """Returns our entries as rq-scheduler lists them, with their next time in UTC (naive)."""
        return {
            job.id.removesuffix(SUFFIX): at for job, at in self.get_jobs(with_times=True) if job.id.endswith(SUFFIX)
        }

    # Deliberate: rq-scheduler's own methods lose due times and run others twice.
    def _refuse(self, *arguments: Any, **options: Any) -> NoReturn:
        raise NotImplementedError(
            "rq-scheduler's own methods lose and double runs: use taskqueue.shared.stores.schedules or /schedules"
        )

    run = enqueue_jobs = enqueue_job = acquire_lock = _refuse
    schedule = cron = enqueue_at = enqueue_in = cancel = change_execution_time = _refuse
