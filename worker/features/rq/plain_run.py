"""Runs a job that usually ends with a status and a result: the report of its task writes them.

So such a job takes no round trip of its own, and a worker that lost its lease writes nothing. RQ's own code does the
rest: it shows a job as started that runs for longer than a moment, and ends one that failed or is to run again.
"""

from __future__ import annotations

import base64
import time
from functools import partial
from typing import Any

import rq.job
from redis import Redis
from redis.exceptions import ConnectionError, TimeoutError
from rq import Queue
from rq.executions import Execution
from rq.job import Job, Retry
from rq.timeouts import JobTimeoutException
from rq.utils import parse_timeout

from firmq.worker.features.rq.allowed import Allowed, Checked
from firmq.worker.features.rq.checked_job import Call, CheckedJob, LazyJob, Outcome, read_job
from firmq.worker.features.rq.claimed_job import ClaimedJob
from firmq.worker.features.rq.job_end import RQJobEnd
from firmq.worker.features.rq.runner import JobRunner, NotRecorded
from firmq.worker.features.rq.started_jobs import UNCERTAIN, StartedJobs
from firmq.worker.handlers.context import CurrentTask
from firmq.worker.handlers.signals import TaskCancelled

MOST_CARRIED = 65536
"""Bytes of a return value that a report carries; RQ's code writes larger ones."""


class PlainRun:
    """One attempt at a plain job: a function, not a method."""

    def __init__(
        self,
        connection: Redis,
        allowed: Allowed,
        started: StartedJobs,
        result_ttl: int,
        job_id: str,
        queue: str,
        claimed: ClaimedJob,
        checked: Checked,
    ) -> None:
        self.connection = connection
        self.allowed = allowed
        self.started = started
        self.result_ttl = result_ttl
        self.job_id = job_id
        self.queue = queue
        self.claimed = claimed
        self.checked = checked
        self.began_us = 0
        self.timeout = _number(claimed.timeout) or Queue.DEFAULT_TIMEOUT

    def run(self, attempt: CurrentTask) -> str:
        """Runs the job and returns its status then. Raises the errors of `JobRunner.run`."""
        name, _, arguments, keywords = self.checked.call
        call = Call(self.allowed.find(name), arguments, keywords)
        job = LazyJob(self._read)
        self.started.begin(partial(self._show, attempt))
        self.began_us = time.time_ns() // 1000
        try:
            outcome = self._outcome(job, call)
        finally:
            shown = self.started.end()
        if isinstance(outcome.error, TaskCancelled):
            raise outcome.error
        if attempt.recorder and (end := self._end(outcome, shown, attempt.id)):
            attempt.recorder.rq_job_end = end
            return str(rq.job.JobStatus.FINISHED.value)
        return self._end_by_rq(attempt, job, outcome, is_first=not shown)

    def _read(self) -> CheckedJob:
        """Returns the job for a function that requests it: as one that has started."""
        self.started.show()
        return read_job(self.connection, self.allowed, self.job_id, self.claimed.record)

    def _outcome(self, job: LazyJob, call: Call) -> Outcome:
        try:
            token = _enter(job)
            try:
                with JobRunner.death_penalty_class(self.timeout, JobTimeoutException, job_id=self.job_id):
                    return Outcome(self.began_us, call.run())
            finally:
                _leave(token)
        except BaseException as error:  # RQ records all that a function raises, and the limits of its task
            return Outcome(self.began_us, None, error)

    def _end(self, outcome: Outcome, shown: str, task_id: str) -> bytes | None:
        """Returns the end for the report; None if it is left to RQ's code."""
        if outcome.error is not None or isinstance(outcome.value, Retry) or shown == UNCERTAIN:
            return None
        try:
            value = None if outcome.value is None else base64.b64encode(self.checked.serializer.dumps(outcome.value))
        except Exception:  # RQ's code stores something else in its place
            return None
        if value is not None and len(value) > MOST_CARRIED:
            return None
        kept = _number(self.claimed.result_ttl)
        kept = self.result_ttl if kept is None else kept
        ended_us = time.time_ns() // 1000
        text = value.decode() if value is not None else None
        return RQJobEnd(self.began_us, ended_us, kept, shown or task_id, bool(shown), text).encode()

    def _end_by_rq(self, attempt: CurrentTask, job: CheckedJob, outcome: Outcome, *, is_first: bool) -> str:
        try:
            job.outcome = outcome
        except (ConnectionError, TimeoutError) as error:
            raise NotRecorded(f"Redis did not answer: {error}") from error
        queue = Queue(self.queue, connection=self.connection, serializer=job.serializer)
        return JobRunner(attempt.worker, queue, self.connection, self.result_ttl).run(job, queue, is_first=is_first)

    def _show(self, attempt: CurrentTask) -> str:
        """Writes that the job has started, as RQ's worker does; returns the name of its execution."""
        job = CheckedJob(self.job_id, connection=self.connection, serializer=self.checked.serializer)
        job.describe_start(self.queue, self.timeout, self.checked.call[0])
        queue = Queue(self.queue, connection=self.connection, serializer=self.checked.serializer)
        runner = JobRunner(attempt.worker, queue, self.connection, self.result_ttl)
        execution: Execution = runner.prepare_execution(job)
        runner.prepare_job_execution(job)
        self.connection.persist(job.key)
        return str(execution.id)


def _number(field: bytes | None) -> int | None:
    return parse_timeout(field.decode()) if field else None


_VARIABLE: Any = getattr(rq.job, "_current_job", None)
"""Of RQ 3; RQ 2 has a stack."""
_STACK: Any = getattr(rq.job, "_job_stack", None)


def _enter(job: Job) -> Any:
    """Makes this the job that `get_current_job` returns."""
    return _VARIABLE.set(job) if _VARIABLE is not None else _STACK.push(job)


def _leave(token: Any) -> None:
    if _VARIABLE is not None:
        _VARIABLE.reset(token)
    else:
        _STACK.pop()
