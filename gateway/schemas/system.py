"""Queues, workers, types and health."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

from pydantic import Field

from gateway.schemas.values import Body, NextCursor, Query, View


class MetricsQuery(Query):
    """Whose metrics are shown."""

    parts: Literal["all", "gateway"] = Field(
        "all", description="`gateway` leaves out the other parts, for a Prometheus that scrapes each of them."
    )


class PauseBody(Body):
    """Why a queue is paused."""

    reason: str = Field(description="Shown to everybody who looks at the queue.", min_length=1, max_length=500)


class MoveForeignBody(Body):
    """Where the jobs of RQ programs go."""

    to: str = Field(
        description="A queue that RQ's own workers serve, and none of this system.",
        min_length=1,
        max_length=200,
        pattern=r"^[^\s\x00-\x1f]+$",
    )


class ForeignMoved(View):
    """What became of the jobs of RQ programs in a queue."""

    moved: int = Field(description="How many are in the list of the other queue now.")


class RunningTaskView(View):
    """What one executor is doing."""

    task_id: str
    type: str
    seconds: float


class QueueExecutorsView(View):
    """How many executors of a worker run tasks of a queue for which QUEUE_EXECUTORS sets a limit."""

    queue: str
    in_use: int
    limit: int


class WorkerView(View):
    """A worker as it last announced itself."""

    name: str
    state: str = Field(
        description="idle, busy or draining; silent: it missed two heartbeats; lost: its leases have ended since."
    )
    reason: str | None = Field(description="Why it is silent or lost.")
    host: str
    pid: int
    version: str
    queues: list[str]
    executors: int
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
    running: list[RunningTaskView]
    queue_executors: list[QueueExecutorsView] = Field(
        description="The queues for which QUEUE_EXECUTORS sets a limit, with the executors that each has in use."
    )


class WorkerList(View):
    """The live workers by name, then those lost in the last week, the latest first; at most a hundred of these."""

    items: list[WorkerView]
    unreadable: list[str] = Field(
        description="Names of those that live and whose record cannot be read; each writes it anew within seconds."
    )
    next_cursor: NextCursor = None


class RetryPolicyView(View):
    """When a failed attempt is tried again; delays in seconds."""

    max_retries: int
    initial_delay: float
    multiplier: float
    max_delay: float
    jitter: float
    pauses: tuple[float, ...] = Field(description="Seconds before each retry; none where the backoff holds.")


class TypeView(View):
    """A task type as workers published it."""

    name: str
    description: str
    data_schema: dict[str, Any] = Field(description="JSON Schema of `data`.")
    timeout_seconds: float | None
    retry: RetryPolicyView = Field(description="The retry policy of its tasks.")
    live: bool = Field(description="Whether a live worker has it; its tasks wait while none does.")
    versions: int = Field(description="How many versions of it workers have; more than one during an update.")
    last_seen_at: datetime = Field(description="When a worker that has it was last heard of.")
    last_seen_on: str = Field(description="The host of that worker.")


class TypeList(View):
    """The task types by name."""

    items: list[TypeView]
    next_cursor: NextCursor = None


class QueueView(View):
    """A queue at a glance."""

    name: str
    weight: int
    default: bool
    pending: int
    scheduled: int
    retrying: int
    foreign: int = Field(description="Jobs that RQ programs put into its list: parked, not run.")
    oldest_at: datetime | None = Field(description="When its longest waiting task was enqueued.")
    paused: bool
    paused_reason: str | None
    paused_by: str | None = Field(description="Who paused it, where that is known.")
    paused_at: datetime | None


class QueueList(View):
    """The queues, the heaviest first."""

    items: list[QueueView]
    next_cursor: NextCursor = None


class StoreHealth(View):
    """What Redis says of itself."""

    reachable: bool
    version: str | None = None
    eviction_policy: str | None = None
    append_only: bool | None = None
    used_memory_bytes: int | None = None
    error: str | None = None


class Health(View):
    """Whether tasks are taken and run."""

    status: Literal["ok", "degraded", "unavailable"]
    version: str
    redis: StoreHealth
    workers: int | None
    queues: dict[str, int] | None = Field(description="Pending tasks of each priority.")
    notes: list[str] = Field(description="What somebody should look at.")


class HealthCheck(View):
    """One thing that was looked at."""

    check: str
    level: Literal["ok", "warning", "error"]
    seen: str
    advice: str = Field(description="What to do, unless all is well.")


class HealthDetail(View):
    """An examination of the whole system."""

    status: Literal["ok", "warning", "error"] = Field(description="The worst level of the checks.")
    version: str
    checks: list[HealthCheck]


class Alive(View):
    """A yes."""

    status: Literal["ok"]
