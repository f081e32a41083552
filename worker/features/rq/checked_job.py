"""RQ's job, of which only the checked call runs; and a job that is read on demand."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

from redis import Redis
from rq.job import Job

from firmq.worker.features.rq.allowed import Allowed, Checked
from firmq.worker.handlers.signals import TaskCancelled


class Outcome(NamedTuple):
    """How the function of a job has ended."""

    began_us: int
    value: Any
    error: BaseException | None = None

    @property
    def began(self) -> datetime:
        return datetime.fromtimestamp(self.began_us / 1_000_000, UTC)


class Call(NamedTuple):
    """The fields of a job with which RQ's code calls its function."""

    func: Any
    args: Sequence[Any]
    kwargs: dict[str, Any]

    def run(self) -> Any:
        """Returns the function's result; RQ's code awaits a coroutine."""
        return Job._execute(self)  # type: ignore[arg-type]  # noqa: SLF001


class CheckedJob(Job):
    """A job that RQ's code does not read again, so that it runs the checked call."""

    outcome: Outcome | None = None
    """How its function has ended, if it was called already: RQ's code that runs the job gets this instead."""

    def restore_checked(self, record: Mapping[bytes, bytes], checked: Checked) -> None:
        """Takes over the record and its checked call. RQ would send its webhooks to any address: they are left out."""
        self.restore(record)
        self._func_name, self._instance, self._args, self._kwargs = checked.call  # type: ignore[assignment]
        self.webhooks = []

    def describe_start(self, queue: str, timeout: int, name: str) -> None:
        """Sets the fields with which RQ's code shows a job as started, without reading its record."""
        self.origin, self.timeout, self._func_name = queue, timeout, name

    def _execute(self) -> Any:
        if self.outcome is None:
            try:
                return super()._execute()
            except TaskCancelled:
                self.__dict__["_failure_callback"] = None  # RQ calls none for a job that is canceled or stopped
                raise
        self.started_at = self.outcome.began
        if self.outcome.error is not None:
            raise self.outcome.error
        return self.outcome.value


def read_job(
    connection: Redis, allowed: Allowed, job_id: str, otherwise: Mapping[bytes, bytes] | None = None
) -> CheckedJob:
    """Returns a job that may be run; a deleted one from the record in `otherwise`. Raises JobRefused."""
    record: Any = connection.hgetall(Job.key_for(job_id)) or otherwise or {}
    return checked_job(connection, allowed, job_id, record)


def checked_job(connection: Redis, allowed: Allowed, job_id: str, record: Mapping[bytes, bytes]) -> CheckedJob:
    """Returns the job of a record, if it may be run. Raises JobRefused."""
    checked = allowed.check(record)
    found = CheckedJob(job_id, connection=connection, serializer=checked.serializer)
    found.restore_checked(record, checked)
    return found


class LazyJob(CheckedJob):
    """The current job for a function that rarely uses it: the first use of an attribute reads it."""

    def __init__(self, read: Callable[[], CheckedJob]) -> None:
        self.__dict__["_read"] = read

    def __getattr__(self, name: str) -> Any:
        self._become_checked()
        return getattr(self, name)

    def __setattr__(self, name: str, value: Any) -> None:
        self._become_checked()
        setattr(self, name, value)

    def _become_checked(self) -> None:
        with _READING:
            if type(self) is LazyJob:
                object.__setattr__(self, "__dict__", self.__dict__["_read"]().__dict__)
                object.__setattr__(self, "__class__", CheckedJob)


_READING = threading.RLock()
