"""Tasks as they are looked for and shown."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

from pydantic import Field

from gateway.schemas.values import Instant, NextCursor, PageQuery, Priority, Query, View
from shared.domain.task import On, OnParentFailure, Outcome, TaskState


class TasksQuery(PageQuery):
    """Which tasks, newest first. `since` and `until` bound the creation, or with `status` the coming into it."""

    status: TaskState | None = None
    type: str | None = Field(None, max_length=100)
    priority: Priority | None = None
    tag: str | None = Field(None, max_length=64)
    since: Instant | None = None
    until: Instant | None = None


class DeadLettersQuery(PageQuery):
    """Which dead letters, the latest failure first."""

    type: str | None = Field(None, max_length=100)
    since: Instant | None = None
    until: Instant | None = None


class CancelQuery(Query):
    """Why a task is cancelled."""

    reason: str = Field("cancelled over the API", min_length=1, max_length=500)


class ResultQuery(Query):
    """How long to wait for the end of a task."""

    wait: float = Field(0, ge=0, le=30, description="Seconds; the answer comes as soon as the task has ended.")


class DependencyView(View):
    """A task that had to end first, and which end."""

    task_id: str
    on: On


class TaskStatus(View):
    """Where a task is now."""

    task_id: str
    status: TaskState


class ErrorView(View):
    """Why an attempt did not succeed. Lists leave the traceback out."""

    type: str
    message: str
    place: str | None = Field(
        None, description="Where in the code it arose; of the error that a task failed for good with."
    )
    traceback: str | None = None


class ProgressView(View):
    """How far a running handler says it is."""

    fraction: float
    message: str


class TaskView(View):
    """A task as lists show it."""

    task_id: str
    type: str
    status: TaskState
    priority: str
    created_at: datetime | None
    started_at: datetime | None
    ended_at: datetime | None
    next_attempt_at: datetime | None = Field(description="When it runs next, while it is scheduled or retrying.")
    attempt: int = Field(description="Attempts begun so far.")
    retry_count: int = Field(description="Retries used up, since it was last taken out of the dead letters.")
    crash_count: int = Field(description="Attempts whose process died.")
    worker: str | None = Field(description="Who runs it now.")
    tags: list[str]
    progress: ProgressView | None
    error: ErrorView | None = Field(description="Why the latest attempt failed.")
    corrupt: str | None = Field(description="What of the stored record cannot be read.")


class AttemptView(View):
    """One run of a task; without an end while it runs."""

    number: int
    worker: str | None
    enqueued_at: datetime | None
    started_at: datetime | None
    ended_at: datetime | None
    wait_seconds: float | None
    run_seconds: float | None
    outcome: Outcome | None
    error: ErrorView | None
    retry_delay_seconds: float | None = Field(description="How long it then waited for the next attempt.")
    trace_id: str | None
    logs: list[str]


class WebhookView(View):
    """Who is told when a task has ended, and of which ends."""

    url: str
    events: list[str] = Field(description="None: every end.")


class DeliveryView(View):
    """One telling. It failed for good when its status is `failed`: then it is in the dead letters."""

    task_id: str
    status: TaskState
    attempts: int
    created_at: datetime | None
    ended_at: datetime | None
    next_attempt_at: datetime | None
    error: ErrorView | None


class TaskDetailView(TaskView):
    """A task with everything on record."""

    data: Any
    result: Any
    max_retries: int
    timeout_seconds: float | None = Field(description="Time limit of an attempt; null: the type's, or the general one.")
    expires_at: datetime | None
    cancel_reason: str | None
    unique_key: str | None
    limit_key: str | None
    fair_key: str | None
    throttled_by: str | None = Field(
        description="While it stands aside: the limit that it waits for, `worker` for one that can run it; empty for "
        "the turn of its fair_key."
    )
    refusal: str | None = Field(
        description="Why versions of its type refused its data, while it waits for another one."
    )
    warnings: list[str] = Field(description="Why it waits for longer than usual: no live worker has its type.")
    trace_parent: str | None = Field(description="The trace that the submission belongs to.")
    depends_on: list[DependencyView]
    on_parent_failure: OnParentFailure | None = Field(description="null when it depends on nothing.")
    dependents: list[str] = Field(description="The first tasks that depend on it.")
    dependents_count: int
    batch_id: str | None
    batch_index: int | None
    webhook: WebhookView | None = Field(description="Who is told when it has ended.")
    deliveries: list[DeliveryView] = Field(
        description="What was told, the latest first, the last twenty; each is a task with its own attempts."
    )
    delivery_of: str | None = Field(description="Of a delivery: the task that it tells of.")
    attempts: list[AttemptView]


class ResultView(View):
    """How a task ended."""

    task_id: str
    status: TaskState
    result: Any
    error: ErrorView | None


class Removed(View):
    """A dead letter that is gone for good."""

    task_id: str
    removed: Literal[True]


class TaskList(View):
    """Tasks, newest first."""

    items: list[TaskView]
    next_cursor: NextCursor = None
