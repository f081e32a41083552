"""Models of task queries and responses."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

from pydantic import Field, model_validator

from firmq.gateway.schemas.filters import TaskFilter
from firmq.gateway.schemas.values import NextCursor, PageQuery, Query, SparseView, View
from firmq.shared.domain.step import StepKind
from firmq.shared.domain.task import On, OnParentFailure, Outcome, TaskState
from firmq.shared.domain.task_fields import Score
from firmq.shared.submission.values import Body, Delay, Instant, Priority, QueueName


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


class DependencyView(View):
    """A parent of the task and the required end."""

    task_id: str
    on: On


class TaskStatus(View):
    """The current state of a task."""

    task_id: str
    status: TaskState


class ErrorView(View):
    """The error of an attempt. Lists omit the traceback."""

    type: str
    message: str
    place: str | None = Field(
        None, description="Place in the code that raised it; only for the error of a dead letter."
    )
    traceback: str | None = None


class ProgressView(View):
    """Progress as reported by the running handler."""

    fraction: float
    message: str


class TaskView(View):
    """A task as lists show it."""

    task_id: str
    type: str
    status: TaskState
    queue: str
    created_at: datetime | None
    started_at: datetime | None
    ended_at: datetime | None
    next_attempt_at: datetime | None = Field(description="Time of the next attempt while it is scheduled or retrying.")
    attempt: int = Field(description="Number of attempts begun.")
    retry_count: int = Field(description="Retries used, since it was last retried as a dead letter.")
    crash_count: int = Field(description="Attempts that ended by the death of their process.")
    worker: str | None = Field(description="Worker that runs it now.")
    tags: list[str]
    progress: ProgressView | None
    error: ErrorView | None = Field(description="Error of the latest attempt.")
    submitted_by: str | None = Field(
        description="Client of the API key that submitted it, or the Redis user of a program that submitted directly."
    )
    score: int | float | None = Field(
        description="Order in its queue, the lower the sooner; without one of its own, when it was enqueued, in "
        "milliseconds since 1970."
    )
    archived: bool = Field(False, description="Whether it is in the history only: it can be read, not changed.")
    corrupt: str | None = Field(
        description="Part of the stored record that cannot be read; null if the record is intact."
    )


class AttemptView(View):
    """One run of a task; `ended_at` is null while it runs."""

    number: int
    worker: str | None
    enqueued_at: datetime | None
    started_at: datetime | None
    ended_at: datetime | None
    wait_seconds: float | None
    run_seconds: float | None
    outcome: Outcome | None
    error: ErrorView | None
    retry_delay_seconds: float | None = Field(description="Delay before the next attempt.")
    trace_id: str | None
    app_version: str | None = Field(description="APP_VERSION of the worker that ran it.")
    logs: list[str]


class WebhookView(View):
    """The webhook of a task: its URL and the end states that are delivered."""

    url: str
    events: list[str] = Field(description="Empty: every end state.")


class DeliveryView(View):
    """A webhook delivery. With status `failed` it is a dead letter."""

    task_id: str
    status: TaskState
    attempts: int
    created_at: datetime | None
    ended_at: datetime | None
    next_attempt_at: datetime | None
    error: ErrorView | None


class StepView(View):
    """A stored step of a task; it is not repeated when the task runs again."""

    name: str
    kind: StepKind
    attempt: int = Field(description="The attempt that ran it, or that received a signal; 0 before.")
    tries: int = Field(description="How often that attempt called its function.")
    started_at: datetime | None
    ended_at: datetime | None
    seconds: float | None
    size_bytes: int = Field(description="Bytes of its result, as JSON.")


class TaskDetailView(TaskView):
    """A task with everything on record."""

    data: Any
    result: Any
    max_retries: int
    timeout_seconds: float | None = Field(
        description="Time limit of an attempt; null: the type's limit, or TASK_TIMEOUT."
    )
    expires_at: datetime | None
    cancel_reason: str | None
    unique_key: str | None
    limit_key: str | None
    fair_key: str | None
    throttled_by: str | None = Field(
        description="While it is throttled: the name of the limit, `worker` if no worker can run its version, or empty "
        "for the turn of its fair_key or its score."
    )
    refusal: str | None = Field(
        description="Why versions of its type refused its data, while it waits for a worker with another version."
    )
    warnings: list[str] = Field(description="Reasons for a possible long wait: no live worker offers its type.")
    trace_parent: str | None = Field(description="W3C traceparent of the submission.")
    depends_on: list[DependencyView]
    on_parent_failure: OnParentFailure | None = Field(description="Null when it has no parents.")
    dependents: list[str] = Field(description="Ids of the first tasks that depend on it.")
    dependents_count: int
    batch_id: str | None
    batch_index: int | None
    webhook: WebhookView | None = Field(description="Called when the task has ended.")
    deliveries: list[DeliveryView] = Field(
        description="The last twenty webhook deliveries, latest first; each is a task with its own attempts."
    )
    delivery_of: str | None = Field(description="For a webhook delivery: the id of the task that it reports.")
    awaits: str | None = Field(
        description="The sleep that its handler is in, `signal:NAME` while it waits for a signal, or "
        "`children:NAME` while it is blocked until its children have ended; else null."
    )
    steps: list[StepView] = Field(description="The stored steps of its handler, in the order in which they began.")
    attempts: list[AttemptView]


class ResultView(View):
    """The end of a task with its result or error."""

    task_id: str
    status: TaskState
    result: Any
    error: ErrorView | None


class Removed(View):
    """A deleted dead letter."""

    task_id: str
    removed: Literal[True]


class TaskList(View):
    """Tasks, newest first."""

    items: list[TaskView]
    next_cursor: NextCursor = None
