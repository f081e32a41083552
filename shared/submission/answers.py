"""The answers about tasks and schedules, of a gateway, its clients and direct submission alike.

They are the one declaration of these answers: the gateway makes their schemas and their JSON from the fields.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, field
from datetime import datetime
from typing import Any, ClassVar

from firmq.shared.domain.step import StepKind
from firmq.shared.domain.task_state import Missed, On, OnParentFailure, Outcome, Overlap, TaskState


class Shown:
    """Base class of answers in the API. Every field is always present; it is null when it has no value."""

    __slots__ = ()
    __pydantic_config__: ClassVar[Mapping[str, Any]] = {
        "extra": "forbid",
        "json_schema_serialization_defaults_required": True,
    }


def about(description: str, default: Any = None) -> Any:
    """Returns a field with its description for the API document; MISSING is no default."""
    return field(default=default, metadata={"description": description})


@dataclass(frozen=True, slots=True, kw_only=True)
class Accepted:
    """An accepted task. `existing`: it existed before, under the same unique_key."""

    task_id: str
    status: TaskState
    type: str
    queue: str
    existing: bool = False
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Status(Shown):
    """The current state of a task."""

    task_id: str
    status: TaskState


@dataclass(frozen=True, slots=True, kw_only=True)
class Error(Shown):
    """The error of an attempt. Lists omit the traceback."""

    type: str
    message: str
    place: str | None = about("Place in the code that raised it; only for the error of a dead letter.")
    traceback: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended(Shown):
    """The end of a task with its result or error."""

    task_id: str
    status: TaskState
    result: Any = None
    error: Error | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress(Shown):
    """Progress as reported by the running handler."""

    fraction: float
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputChunk:
    """A chunk that a handler has emitted, and its attempt.

    `truncated` marks the place where the task has reached MAX_OUTPUT_BYTES: nothing after it is stored.
    """

    attempt: int
    chunk: Any = None
    truncated: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt(Shown):
    """One run of a task; `ended_at` is null while it runs."""

    number: int
    worker: str | None = None
    enqueued_at: datetime | None = None
    started_at: datetime | None = None
    ended_at: datetime | None = None
    wait_seconds: float | None = None
    run_seconds: float | None = None
    outcome: Outcome | None = None
    error: Error | None = None
    retry_delay_seconds: float | None = about("Delay before the next attempt.")
    trace_id: str | None = None
    app_version: str | None = about("APP_VERSION of the worker that ran it.")
    logs: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredStep(Shown):
    """A stored step of a task; it is not repeated when the task runs again."""

    name: str
    kind: StepKind
    attempt: int = about("The attempt that ran it, or that received a signal; 0 before.", MISSING)
    tries: int = about("How often that attempt called its function.", 1)
    started_at: datetime | None = None
    ended_at: datetime | None = None
    seconds: float | None = None
    size_bytes: int = about("Bytes of its result, as JSON.", 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Task(Shown):
    """A task as lists show it."""

    task_id: str
    type: str
    status: TaskState
    queue: str
    created_at: datetime | None = None
    started_at: datetime | None = None
    ended_at: datetime | None = None
    next_attempt_at: datetime | None = about("Time of the next attempt while it is scheduled or retrying.")
    attempt: int = about("Number of attempts begun.", 0)
    retry_count: int = about("Retries used, since it was last retried as a dead letter.", 0)
    crash_count: int = about("Attempts that ended by the death of their process.", 0)
    worker: str | None = about("Worker that runs it now.")
    tags: tuple[str, ...] = ()
    progress: Progress | None = None
    error: Error | None = about("Error of the latest attempt.")
    submitted_by: str | None = about(
        "Client of the API key that submitted it, or the Redis user of a program that submitted directly."
    )
    score: int | float | None = about(
        "Order in its queue, the lower the sooner; without one of its own, when it was enqueued, in milliseconds since "
        "1970."
    )
    archived: bool = about("Whether it is in the history only: it can be read, not changed.", False)
    corrupt: str | None = about("Part of the stored record that cannot be read; null if the record is intact.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Dependency(Shown):
    """A parent of the task and the required end."""

    task_id: str
    on: On


@dataclass(frozen=True, slots=True, kw_only=True)
class Webhook(Shown):
    """The webhook of a task: its URL and the end states that are delivered."""

    url: str
    events: tuple[str, ...] = about("Empty: every end state.", ())


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery(Shown):
    """A webhook delivery. With status `failed` it is a dead letter."""

    task_id: str
    status: TaskState
    attempts: int = 0
    created_at: datetime | None = None
    ended_at: datetime | None = None
    next_attempt_at: datetime | None = None
    error: Error | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskDetail(Task):
    """A task with everything on record."""

    data: Any = None
    result: Any = None
    max_retries: int = 0
    timeout_seconds: float | None = about("Time limit of an attempt; null: the type's limit, or TASK_TIMEOUT.")
    expires_at: datetime | None = None
    cancel_reason: str | None = None
    unique_key: str | None = None
    limit_key: str | None = None
    fair_key: str | None = None
    throttled_by: str | None = about(
        "While it is throttled: the name of the limit, `worker` if no worker can run its version, or empty for the "
        "turn of its fair_key or its score."
    )
    refusal: str | None = about(
        "Why versions of its type refused its data, while it waits for a worker with another version."
    )
    warnings: tuple[str, ...] = about("Reasons for a possible long wait: no live worker offers its type.", ())
    trace_parent: str | None = about("W3C traceparent of the submission.")
    depends_on: tuple[Dependency, ...] = ()
    on_parent_failure: OnParentFailure | None = about("Null when it has no parents.")
    dependents: tuple[str, ...] = about("Ids of the first tasks that depend on it.", ())
    dependents_count: int = 0
    batch_id: str | None = None
    batch_index: int | None = None
    webhook: Webhook | None = about("Called when the task has ended.")
    deliveries: tuple[Delivery, ...] = about(
        "The last twenty webhook deliveries, latest first; each is a task with its own attempts.", ()
    )
    delivery_of: str | None = about("For a webhook delivery: the id of the task that it reports.")
    awaits: str | None = about(
        "The sleep that its handler is in, `signal:NAME` while it waits for a signal, or `children:NAME` while it is "
        "blocked until its children have ended; else null."
    )
    steps: tuple[StoredStep, ...] = about("The stored steps of its handler, in the order in which they began.", ())
    attempts: tuple[Attempt, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule(Shown):
    """A schedule with its due times and counts."""

    name: str
    type: str
    data: Any = None
    queue: str
    cron: str | None = None
    interval: int | None = None
    timezone: str = "UTC"
    missed: Missed = Missed.ONCE
    missed_limit: int = 100
    overlap: Overlap = Overlap.ALLOW
    timeout: float | None = None
    expires_in: float | None = None
    retry: Mapping[str, float | Sequence[float]] = field(default_factory=dict)
    tags: tuple[str, ...] = ()
    limit_key: str | None = None
    fair_key: str | None = None
    score: int | float | None = None
    webhook: Webhook | None = None
    source: str = about("`file` if the configuration file declares it, else `api`.", MISSING)
    paused: bool
    paused_reason: str | None = None
    next_at: datetime | None = about("Next due time; null while paused.")
    next_times: tuple[datetime, ...] = about("The next five due times.", ())
    last_due_at: datetime | None = about("Latest due time that created a task.")
    last_task_id: str | None = None
    tasks: int = about("Number of due times that created tasks.", 0)
    missed_times: int = about("Number of due times that passed without a task.", 0)
    overlaps: int = about("Number of due times skipped because the last task had not ended.", 0)
