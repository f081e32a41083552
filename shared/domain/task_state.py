"""The words of a task's life cycle: its states, outcomes, and relations. Quick to import, as clients need them."""

from __future__ import annotations

from enum import StrEnum


class TaskState(StrEnum):
    """Where a task is, as the API spells it."""

    SCHEDULED = "scheduled"
    BLOCKED = "blocked"
    PENDING = "pending"
    RUNNING = "running"
    RETRYING = "retrying"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    EXPIRED = "expired"

    @property
    def ended(self) -> bool:
        """Returns whether the state is final."""
        return self in ENDED


ENDED = frozenset({TaskState.COMPLETED, TaskState.FAILED, TaskState.CANCELLED, TaskState.EXPIRED})


class Outcome(StrEnum):
    """The outcome of an attempt. `refused` is in logs and traces only: that attempt is not counted."""

    COMPLETED = "completed"
    FAILED = "failed"
    TIMED_OUT = "timed_out"
    CRASHED = "crashed"
    LOST = "lost"
    INTERRUPTED = "interrupted"
    CANCELLED = "cancelled"
    REFUSED = "refused"


class On(StrEnum):
    """Which end of a parent a task waits for."""

    SUCCESS = "success"
    END = "end"


class OnParentFailure(StrEnum):
    """The handling of a task when a parent whose success it requires ends otherwise.

    It is cancelled; or released, to run as if the parent had succeeded; or it waits as long as the parent is a dead
    letter that may still be retried.
    """

    CANCEL = "cancel"
    RELEASE = "release"
    WAIT = "wait"


class Missed(StrEnum):
    """The handling of due times that passed long ago, because no housekeeper ran."""

    SKIP = "skip"
    ONCE = "once"
    ALL = "all"


class Overlap(StrEnum):
    """The handling of a due time when the last task of the schedule has not ended."""

    ALLOW = "allow"
    SKIP = "skip"
    CANCEL = "cancel"
