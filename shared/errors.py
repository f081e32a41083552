"""Every error that the product raises itself, under one root.

The docstring is the message; what it is about is an attribute.
"""

from __future__ import annotations

from typing import Any


class TaskQueueError(Exception):
    """Something in the task queue went wrong."""

    def __init__(self, message: str = "", **about: Any) -> None:
        super().__init__(message or (self.__doc__ or "").strip().splitlines()[0])
        self.about = about


class SettingsError(TaskQueueError):
    """Settings are wrong."""


class StoreUnavailable(TaskQueueError):
    """Redis does not answer."""


class StoreRefused(StoreUnavailable):
    """Redis answers but does not take writes: it is full, read-only, still loading, or busy with somebody's script."""


class IncompatibleSchema(StoreRefused):
    """The data in Redis is in a format that this version does not read."""


class CorruptKey(StoreRefused):
    """A key in Redis holds something of another type than belongs there: recovery sets it aside within seconds."""


class StoreMisfit(StoreUnavailable):
    """Redis cannot be used with these settings: waiting will not help."""


class TaskNotFound(TaskQueueError):
    """No task has this id; it never existed or its retention is over."""


class IllegalTransition(TaskQueueError):
    """The task is in a state that does not allow this."""


class CorruptRecord(TaskQueueError):
    """A stored record cannot be read."""


class InvalidJSON(TaskQueueError):
    """The text is not strict JSON."""


class LockTaken(TaskQueueError):
    """The lock is held by somebody else."""


class LockLost(TaskQueueError):
    """The lock of this step has ended, or somebody else has taken it."""


class StepRefused(LockLost):
    """A script refused a step because the lock it was to happen under has ended or is another's."""


class LockChanged(TaskQueueError):
    """The lock is not held by the token that was seen."""


class KeyBelongsToAnother(TaskQueueError):
    """Another request was sent with this Idempotency-Key before: send a new key with a new request."""


class RequestInProgress(TaskQueueError):
    """The first request with this Idempotency-Key is still being carried out."""


class BatchStopped(IllegalTransition):
    """The batch of this task was stopped, and none of its tasks starts."""


class BatchNotFound(TaskQueueError):
    """No batch has this id; it never existed, or all its tasks have been removed."""


class BatchBusy(TaskQueueError):
    """An earlier cancel or retry of all tasks of this batch is still going on: wait for it."""


class ScheduleNotFound(TaskQueueError):
    """There is no schedule of this name."""
