"""Models of queues, workers, task types and health."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

from pydantic import Field

from firmq.gateway.schemas.values import NextCursor, Query, View
from firmq.shared.domain.values import Body, Instant


class MetricsQuery(Query):
    """Parameters of GET /metrics."""

    parts: Literal["all", "gateway"] = Field(
        "all", description="`gateway` omits the other parts, for a Prometheus that scrapes each part itself."
    )


class ReasonBody(Body):
    """The reason for pausing a schedule."""

    reason: str = Field(description="Shown with the pause.", min_length=1, max_length=500)


class PauseBody(ReasonBody):
    """The reason for pausing a queue or a task type, and when the pause ends."""

    until: Instant | None = Field(None, description="When a housekeeper resumes it; null: it is resumed by a request.")


class MoveForeignBody(Body):
    """The destination of foreign jobs."""

    to: str = Field(
        description="A queue that an RQ worker serves; not a queue of this system.",
        min_length=1,
        max_length=200,
        pattern=r"^[^\s\x00-\x1f]+$",
    )


class ForeignMoved(View):
    """The number of foreign jobs that were moved."""

    moved: int = Field(description="Number of jobs now in the list of the other queue.")


class RunningTaskView(View):
    """The task that one executor is running."""

    task_id: str
    type: str
    seconds: float


class QueueExecutorsView(View):
    """The executors of a worker in use by a queue that QUEUE_EXECUTORS limits."""

    queue: str
    in_use: int
    limit: int


class BlockingTypeView(View):
    """A task type that blocked the event loop of a concurrent executor."""

    type: str
    where: str = Field(description="File, line and function.")


class WorkerView(View):
    """A worker as of its last heartbeat."""

    name: str
    state: str = Field(
        description="idle, busy or draining; silent: missed two heartbeats; lost: its leases have ended."
    )
    reason: str | None = Field(description="Why it is silent or lost, or cannot run tasks of one kind; else null.")
    host: str
    pid: int
    version: str
    app_version: str | None = Field(description="Its APP_VERSION.")
    queues: list[str]
    executors: int
    slots: int = Field(description="How many tasks its executors can run at a time.")
    active: int = Field(description="How many tasks they run.")
    started_at: datetime
    last_heartbeat_at: datetime | None
    held: int = Field(description="Tasks claimed and not yet ended.")
    completed: int
    failed: int
    retried: int
    crashed: int
    lost: int
    busy_seconds: float
    memory_bytes: int
    running: list[RunningTaskView] = Field(description="Tasks that run; of one executor at most 20.")
    queue_executors: list[QueueExecutorsView] = Field(
        description="The queues that QUEUE_EXECUTORS limits, each with its executors in use."
    )
    blocking_types: list[BlockingTypeView] = Field(
        description="Types that blocked an event loop, and run one at a time until the worker restarts."
    )


class WorkerList(View):
    """Live workers by name, then workers lost in the last week, most recent first, at most 100 of these."""

    items: list[WorkerView]
    unreadable: list[str] = Field(
        description="Names of live workers whose record cannot be read; each rewrites its record within seconds."
    )
    next_cursor: NextCursor = None


class RetryPolicyView(View):
    """A retry policy; delays in seconds."""

    max_retries: int
    initial_delay: float
    multiplier: float
    max_delay: float
    jitter: float
    pauses: tuple[float, ...] = Field(description="Seconds before each retry; empty when the backoff applies.")


class TypeView(View):
    """A task type as published by workers."""

    name: str
    description: str
    data_schema: dict[str, Any] = Field(description="JSON Schema of `data`.")
    timeout_seconds: float | None
    retry: RetryPolicyView = Field(description="The retry policy of its tasks.")
    paused: bool
    paused_reason: str | None
    paused_by: str | None = Field(description="Client or user that paused it, if known.")
    paused_at: datetime | None
    paused_until: datetime | None = Field(description="When the pause ends automatically.")
    live: bool = Field(description="Whether a live worker offers the type; its tasks wait while none does.")
    versions: int = Field(description="Number of versions that workers offer; more than one during an update.")
    last_seen_at: datetime = Field(description="Last heartbeat of a worker that offers the type.")
    last_seen_on: str = Field(description="Host of that worker.")


class TypeList(View):
    """Task types by name."""

    items: list[TypeView]
    next_cursor: NextCursor = None


class QueueView(View):
    """A queue with its counts."""

    name: str
    weight: int
    default: bool
    pending: int
    scheduled: int
    retrying: int
    foreign: int = Field(description="Foreign jobs of RQ programs in its list: parked, never run.")
    oldest_at: datetime | None = Field(description="When its longest-waiting task was enqueued.")
    paused: bool
    paused_reason: str | None
    paused_by: str | None = Field(description="Client or user that paused it, if known.")
    paused_at: datetime | None
    paused_until: datetime | None = Field(description="When the pause ends automatically.")


class QueueList(View):
    """Queues, highest weight first."""

    items: list[QueueView]
    next_cursor: NextCursor = None


class StoreHealth(View):
    """State and configuration of Redis."""

    reachable: bool
    version: str | None = None
    eviction_policy: str | None = None
    append_only: bool | None = None
    used_memory_bytes: int | None = None
    error: str | None = None


class Health(View):
    """Whether tasks are accepted and run."""

    status: Literal["ok", "degraded", "unavailable"]
    version: str
    redis: StoreHealth
    workers: int | None
    queues: dict[str, int] | None = Field(description="Pending tasks of each queue.")
    notes: list[str] = Field(description="Findings that need attention.")


class Alive(View):
    """The process is alive."""

    status: Literal["ok"]
