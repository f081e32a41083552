"""The states of a task: the client's whole view of its life cycle, and quick to import."""

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
