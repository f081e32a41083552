"""`firmq.rq-job`: runs one job of an RQ program. Loaded only where RQ_QUEUES names queues."""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

from redis import Redis
from redis.exceptions import ConnectionError, TimeoutError
from rq import Queue
from rq.exceptions import AbandonedJobError
from rq.job import Job, JobStatus

from firmq.shared.config.settings import load
from firmq.shared.domain.task import RQ_JOB_TYPE
from firmq.shared.features.rq.settings import RqSettings
from firmq.shared.redis.client import connect
from firmq.worker.features.rq.allowed import Allowed
from firmq.worker.features.rq.checked_job import checked_job, read_job
from firmq.worker.features.rq.claimed_job import ClaimedJob
from firmq.worker.features.rq.job_end import WRITTEN_BY_RQ
from firmq.worker.features.rq.plain_run import PlainRun
from firmq.worker.features.rq.runner import JobRunner, NotRecorded, call_back
from firmq.worker.features.rq.started_jobs import StartedJobs
from firmq.worker.handlers.context import current_task
from firmq.worker.handlers.hooks import ExecutorContext, executor_started
from firmq.worker.handlers.registry import task

_NOT_AGAIN = frozenset(
    each.encode() for each in (JobStatus.FINISHED, JobStatus.CANCELED, JobStatus.STOPPED, JobStatus.SCHEDULED)
)
"""SCHEDULED: RQ put the job back for a later retry before the executor died; it is a task of its own when it is due."""


class Parts(NamedTuple):
    connection: Redis
    allowed: Allowed
    started: StartedJobs
    result_ttl: int


@task(RQ_JOB_TYPE, retry={NotRecorded: [1, 2, 5, 10, 30, 60], Exception: None})
def rq_job(job: str, queue: str, enqueued_at: str = "", description: str = "", *, died: bool = False) -> dict[str, Any]:
    """Runs a job of an RQ program. Created by the adoption of the job, see RQ_QUEUES; with `died` after its death."""
    attempt, parts = current_task(), _parts()
    claimed = ClaimedJob(*attempt.rq_job) if attempt.rq_job else None
    if claimed and not died and attempt.attempt == 1 and claimed.is_plain(enqueued_at):
        checked = parts.allowed.check(claimed.record)
        if checked.call[1] is None:
            status = PlainRun(*parts, job, queue, claimed, checked).run(attempt)
            return {"job": job, "status": status}
    if attempt.recorder:
        attempt.recorder.rq_job_end = WRITTEN_BY_RQ
    if died:
        return _follow_up(parts, job, queue, enqueued_at)
    return _run_by_rq(parts, job, queue, enqueued_at)


def _run_by_rq(parts: Parts, job: str, queue: str, enqueued_at: str) -> dict[str, Any]:
    """Runs a job through RQ's own code."""
    connection, allowed, *_ = parts
    record: Any = connection.hgetall(Job.key_for(job))
    if reason := _why_not(record, enqueued_at):
        if reason == _FINISHED:
            _enqueue_dependents(parts, job, queue)
        return {"job": job, "skipped": reason}
    found = checked_job(connection, allowed, job, record)
    rq_queue = Queue(queue, connection=connection, serializer=found.serializer)
    attempt = current_task()
    runner = JobRunner(attempt.worker, rq_queue, connection, parts.result_ttl)
    status = runner.run(found, rq_queue, is_first=attempt.attempt == 1)
    return {"job": job, "status": status}


def _follow_up(parts: Parts, job: str, queue: str, enqueued_at: str) -> dict[str, Any]:
    """Calls `on_failure` of a job whose processes died, or `on_stopped`, as RQ does, and enqueues its dependents."""
    connection, allowed, *_ = parts
    record: Any = connection.hgetall(Job.key_for(job))
    status = record.get(b"status", b"").decode()
    if record.get(b"enqueued_at", b"").decode() != enqueued_at or status not in ("failed", "stopped"):
        return {"job": job, "skipped": "the job was deleted or enqueued again since"}
    found = checked_job(connection, allowed, job, record)
    latest = found.latest_result()
    error = AbandonedJobError(latest.exc_string if latest else "")
    try:
        if status == "stopped":
            call_back(found, "stopped")
        else:
            call_back(found, "failure", type(error), error, None)
    finally:
        Queue(queue, connection=connection, serializer=found.serializer).enqueue_dependents(found)
    return {"job": job, "status": status}


def _enqueue_dependents(parts: Parts, job: str, queue: str) -> None:
    """Enqueues jobs that were found to depend on one when a report had written its end."""
    connection, allowed, *_ = parts
    try:
        if connection.exists(Job.dependents_key_for(job)):
            found = read_job(connection, allowed, job)
            Queue(queue, connection=connection, serializer=found.serializer).enqueue_dependents(found)
    except (ConnectionError, TimeoutError) as error:
        raise NotRecorded(f"Redis did not answer: {error}") from error


@executor_started
def watch_started_jobs(executor: ExecutorContext) -> None:
    """Starts the thread that shows jobs as started."""
    _parts().started.start()


@cache
def _parts() -> Parts:
    settings = load()
    connection = connect(settings.stores[0].store_url, timeout=5, name="rq-job")
    own = RqSettings.of(settings)
    allowed = Allowed(own.rq_allow, pickles=own.rq_pickle)
    return Parts(connection, allowed, StartedJobs(), own.rq_result_ttl)


_FINISHED = "the job is finished"


def _why_not(record: dict[bytes, bytes], enqueued_at: str) -> str:
    """Returns why a job is not run (again); "" when it is to be run."""
    if not record:
        return "the job was deleted"
    if record.get(b"enqueued_at", b"").decode() != enqueued_at:
        return "the job was enqueued again since"
    status = record.get(b"status", b"")
    return f"the job is {status.decode()}" if status in _NOT_AGAIN else ""
