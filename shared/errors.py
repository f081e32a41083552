"""Defines the product's own exceptions, under one root.

The docstring is the default message; keyword arguments are kept in `about`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class FirmqError(Exception):
    """The task queue failed."""

    def __init__(self, message: str = "", **about: Any) -> None:
        super().__init__(message or (self.__doc__ or "").strip().splitlines()[0])
        self.about = about


class SettingsError(FirmqError):
    """Invalid settings."""


class NotInstalled(FirmqError, ImportError):
    """A package that an extra brings is not installed."""


@contextmanager
def needs(user: str, *, extra: str) -> Iterator[None]:
    """Wraps the imports of `user`. Raises NotInstalled, which names the extra to install, for a missing package."""
    try:
        yield
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing in ("", "firmq"):
            raise
        text = f"{user} needs {missing}, which is not installed: pip install 'firmq[{extra}]'"
        raise NotInstalled(text) from error


class StoreUnavailable(FirmqError):
    """Redis does not answer."""


class StoreRefused(StoreUnavailable):
    """Redis answers but refuses writes: it is full, read-only, still loading, or busy with a long script."""


class IncompatibleSchema(StoreRefused):
    """The data in Redis is in a format that this version does not read."""


class CorruptKey(StoreRefused):
    """A key in Redis holds a value of the wrong type: the consistency check quarantines it within seconds."""


class NotPlaced(FirmqError):
    """The store is draining, and this task can be stored in another one."""


class StoreMisfit(StoreUnavailable):
    """Redis cannot be used with these settings: retrying does not help."""


class HistoryUnavailable(StoreUnavailable):
    """The database of the history does not answer."""


class PayloadUnavailable(FirmqError):
    """The payload store does not answer, or lacks the payload."""


class TaskNotFound(FirmqError):
    """No task has this id: it never existed, its retention has ended, or no relay has sent it from an outbox yet."""


class IllegalTransition(FirmqError):
    """The state of the task does not allow this."""


class QueueFull(FirmqError):
    """The queue is full of tasks ready to run."""


class CorruptRecord(FirmqError):
    """A stored record cannot be read."""


class InvalidJSON(FirmqError):
    """The text is not strict JSON."""


class LockTaken(FirmqError):
    """Another holder has the lock."""


class LockLost(FirmqError):
    """The lock of this step has expired or has another holder."""


class LeaseEnded(FirmqError):
    """The lease of this attempt has ended, or another attempt of the task holds one."""


class StepsLost(FirmqError):
    """Redis has lost steps that it had confirmed to this attempt: it was killed, or a replica took over."""


class TooManySteps(FirmqError):
    """A task has more steps, or more bytes of them, than are stored."""


class TooManyChildren(FirmqError):
    """A task starts more children than it may have."""


class StepRefused(LockLost):
    """A script refused a step because its lock has expired or has another holder."""


class LockChanged(FirmqError):
    """The lock is no longer held under the given token."""


class KeyBelongsToAnother(FirmqError):
    """A different request was sent with this Idempotency-Key before: send a new key with a new request."""


class RequestInProgress(FirmqError):
    """The first request with this Idempotency-Key is still in progress."""


class TooManyAtOnce(FirmqError):
    """This process reads as much at a time as it may."""


class BatchStopped(IllegalTransition):
    """The batch of this task is stopped; none of its tasks starts."""


class BatchNotFound(FirmqError):
    """No batch has this id: it never existed, or all its tasks have been removed."""


class BatchBusy(FirmqError):
    """An earlier cancel or retry of this batch is still in progress: wait for it to end."""


class ScheduleNotFound(FirmqError):
    """No schedule has this name."""


class ScheduleChanged(FirmqError):
    """The schedule was created, changed or deleted meanwhile."""
