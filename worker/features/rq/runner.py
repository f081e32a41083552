"""Runs an RQ job as RQ's own worker does in one process, and keeps its error.

RQ's code writes what the enqueuing program sees: status, results, registries, retries, repetitions and dependents; and
it calls the callbacks. What RQ keeps about workers is left out, because the worker is not one of RQ's.
"""

from __future__ import annotations

import sys
from typing import Any

from redis import Redis
from redis.exceptions import ConnectionError, TimeoutError
from rq import Queue, SimpleWorker
from rq.executions import Execution, ExecutionRegistry
from rq.job import Job, JobStatus
from rq.registry import FailedJobRegistry

from firmq.shared.redis.client import text
from firmq.worker.features.rq.checked_job import CheckedJob
from firmq.worker.handlers.signals import TaskCancelled


class NotRecorded(Exception):
    """Redis did not answer when RQ's code wrote how the job ended: the job is run again."""


def call_back(job: Job, end: str, *about: Any) -> None:
    """Calls `on_failure` ("failure") or `on_stopped` ("stopped") of a job, if it has one. Raises its errors."""
    name = f"execute_{end}_callback"
    if method := getattr(job, name, None):  # RQ 2
        method(SimpleWorker.death_penalty_class, *about)
    else:
        import rq.callbacks  # type: ignore[import-not-found,unused-ignore]

        getattr(rq.callbacks, name)(job, SimpleWorker.death_penalty_class, *about)


class JobRunner(SimpleWorker):
    """One attempt at one job."""

    def __init__(self, worker: str, queue: Queue, connection: Redis, result_ttl: int) -> None:
        super().__init__(
            [queue],
            name=worker,
            connection=connection,
            prepare_for_work=False,
            serializer=queue.serializer,
            log_job_description=False,
            default_result_ttl=result_ttl,
        )
        self.error: BaseException | None = None

    def run(self, job: Job, queue: Queue, *, is_first: bool) -> str:
        """Runs the job and returns its status then, "deleted" when RQ keeps nothing of it.

        Raises the error with which it failed permanently, which RQ has recorded, or NotRecorded.
        """
        try:
            if not is_first or job.get_status(refresh=False) != JobStatus.QUEUED:
                self._forget_earlier_attempts(job)
            self.execute_job(job, queue)
            status = text(self.connection.hget(job.key, "status") or "deleted")
        except (ConnectionError, TimeoutError) as error:
            raise NotRecorded(f"Redis did not answer: {error}") from error
        if self.error is not None and not isinstance(self.error, Exception):
            raise self.error  # the time limit of the task, or its cancellation
        if status == JobStatus.STARTED:
            raise NotRecorded("RQ's code did not write how the job ended") from self.error
        if self.error is not None and status == JobStatus.FAILED:
            raise self.error
        return status

    def prepare_execution(self, job: Job) -> Execution:
        execution: Execution = super().prepare_execution(job)
        if isinstance(job, CheckedJob) and job.outcome is not None:
            execution.created_at = job.outcome.began
        return execution

    def handle_job_failure(self, *arguments: Any, **options: Any) -> None:
        """Leaves the job of a cancelled task to `rq_fail`, which knows whether it was canceled or stopped."""
        if not isinstance(sys.exc_info()[1], TaskCancelled):
            super().handle_job_failure(*arguments, **options)

    def handle_exception(self, job: Job, *exc_info: Any) -> None:
        self.error = exc_info[1]

    def _forget_earlier_attempts(self, job: Job) -> None:
        """Removes RQ's records of attempts whose executor died; RQ would count them as running."""
        with self.connection.pipeline() as pipeline:
            FailedJobRegistry(job.origin, self.connection).remove(job, pipeline)
            for each in ExecutionRegistry(job.id, self.connection).get_execution_ids():
                Execution(each, job.id, self.connection).delete(job, pipeline)
            pipeline.execute()

    def _leave_out(self, *arguments: Any, **options: Any) -> None:
        """Writes nothing: the worker has a record of its own."""

    set_state = heartbeat = procline = _leave_out
    set_current_job_id = set_current_job_working_time = _leave_out
    increment_successful_job_count = increment_failed_job_count = increment_total_working_time = _leave_out
