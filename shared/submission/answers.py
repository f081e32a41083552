"""Typed answers of a gateway and of direct submission."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from firmq.shared.domain.task_state import TaskState


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
class Status:
    """The current state of a task."""

    task_id: str
    status: TaskState


@dataclass(frozen=True, slots=True, kw_only=True)
class Error:
    """The error of an attempt."""

    type: str
    message: str
    place: str | None = None
    traceback: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """The end of a task with its result or error."""

    task_id: str
    status: TaskState
    result: Any = None
    error: Error | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
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
class Attempt:
    """One run of a task."""

    number: int
    worker: str | None = None
    enqueued_at: datetime | None = None
    started_at: datetime | None = None
    ended_at: datetime | None = None
    wait_seconds: float | None = None
    run_seconds: float | None = None
    outcome: str | None = None
    error: Error | None = None
    retry_delay_seconds: float | None = None
    trace_id: str | None = None
    app_version: str | None = None
    logs: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredStep:
    """A stored step of a task: a "result", an "error", a "sleep", which may be over ("slept"), or a "checkpoint".

    `attempt` is the one that ran it, `tries` how often that called its function.
    """

    name: str
    kind: str
    attempt: int
    tries: int = 1
    started_at: datetime | None = None
    ended_at: datetime | None = None
    seconds: float | None = None
    size_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """A task in list form."""

    task_id: str
    type: str
    status: TaskState
    queue: str
    created_at: datetime | None = None
    started_at: datetime | None = None
    ended_at: datetime | None = None
    next_attempt_at: datetime | None = None
    attempt: int = 0
    retry_count: int = 0
    crash_count: int = 0
    worker: str | None = None
    tags: tuple[str, ...] = ()
    progress: Progress | None = None
    error: Error | None = None
    submitted_by: str | None = None
    score: float | None = None
    archived: bool = False
    corrupt: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Dependency:
    """A parent of a task and the required end."""

    task_id: str
    on: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Webhook:
    """The webhook of a task, and the end states that are delivered (none: all)."""

    url: str
    events: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
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
    """A task with its whole record."""

    data: Any = None
    result: Any = None
    max_retries: int = 0
    timeout_seconds: float | None = None
    expires_at: datetime | None = None
    cancel_reason: str | None = None
    unique_key: str | None = None
    limit_key: str | None = None
    fair_key: str | None = None
    throttled_by: str | None = None
    refusal: str | None = None
    warnings: tuple[str, ...] = ()
    trace_parent: str | None = None
    dependents: tuple[str, ...] = ()
    dependents_count: int = 0
    webhook: Webhook | None = None
    deliveries: tuple[Delivery, ...] = ()
    delivery_of: str | None = None
    depends_on: tuple[Dependency, ...] = ()
    on_parent_failure: str | None = None
    batch_id: str | None = None
    batch_index: int | None = None
    attempts: tuple[Attempt, ...] = ()
    awaits: str | None = None
    steps: tuple[StoredStep, ...] = ()
