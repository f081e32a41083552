"""Models of task queries and responses."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, model_validator

from firmq.gateway.schemas.filters import TaskFilter
from firmq.gateway.schemas.values import NextCursor, PageQuery, Query, SparseView, View
from firmq.shared.domain.task import TaskState
from firmq.shared.domain.task_fields import Score
from firmq.shared.domain.values import Body, Delay, Instant, Priority, QueueName
from firmq.shared.submission.answers import Task


class TaskAccepted(SparseView):
    """An accepted, stored task. `warnings` explain a possible long wait: no live worker offers its type."""

    task_id: str
    status: TaskState
    type: str
    queue: str
    warnings: list[str] | None = None


class TasksQuery(PageQuery, TaskFilter):
    """Filters for tasks. `since` and `until` bound the creation time, or with `status` the time of entering it."""

    priority: Priority | None = Field(None, description="As queue, for a configured one.")


class DeadLettersQuery(PageQuery, TaskFilter):
    """Filters for dead letters; their status is `failed`. `since` and `until` bound the time of the failure."""


class ChangeBody(Body):
    """Changes of a task that waits; fields that are left out stay as they are."""

    queue: QueueName | None = Field(None, description="The task goes to the end of this queue, which must exist.")
    delay: Delay | None = Field(None, description="Seconds from now before it may run; 0: now. Excludes run_at.")
    run_at: Instant | None = Field(None, description="Earliest time at which it may run. Excludes delay.")
    data: Any = Field(None, description="Other data; it must be valid under the schema of the type.")
    score: Score | None = Field(None, description="Order in its queue, the lower the sooner.")

    @property
    def changed(self) -> set[str]:
        """Returns the names of the given fields; null is a value of data alone."""
        return {name for name in self.model_fields_set if name == "data" or getattr(self, name) is not None}

    @model_validator(mode="after")
    def _is_change(self) -> ChangeBody:
        if not self.changed:
            raise ValueError("must change something: give queue, delay, run_at, data or score")
        if self.delay is not None and self.run_at is not None:
            raise ValueError("delay and run_at exclude each other: give one of them")
        return self


class RetryBody(Body):
    """Changes of a dead letter that is retried."""

    score: Score | None = Field(None, description="Order in its queue, the lower the sooner; null: as before.")


class CancelQuery(Query):
    """The reason for a cancellation."""

    reason: str = Field("cancelled over the API", min_length=1, max_length=500)


class ResultQuery(Query):
    """Parameters of GET /tasks/{task_id}/result."""

    wait: float = Field(
        0, ge=0, le=30, description="Seconds to wait; the response is sent as soon as the task has ended."
    )


class Removed(View):
    """A deleted dead letter."""

    task_id: str
    removed: Literal[True]


class TaskList(View):
    """Tasks, newest first."""

    items: list[Task]
    next_cursor: NextCursor = None
