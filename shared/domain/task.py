"""A task's life cycle: its states, the legal transitions, and the records of a task and its attempts.

Independent of Redis. Every transition is carried out by one script in `shared/redis/lua`; those scripts are tested
against the table here.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, Literal

from firmq.shared.domain.payload import PayloadReference
from firmq.shared.domain.retry import Changes
from firmq.shared.domain.step import SIGNAL, Step
from firmq.shared.domain.task_state import ENDED as ENDED  # noqa: PLC0414  # part of this module's names
from firmq.shared.domain.task_state import On as On  # noqa: PLC0414
from firmq.shared.domain.task_state import OnParentFailure as OnParentFailure  # noqa: PLC0414
from firmq.shared.domain.task_state import Outcome as Outcome  # noqa: PLC0414
from firmq.shared.domain.task_state import TaskState as TaskState  # noqa: PLC0414
from firmq.shared.domain.traceparent import TRACEPARENT, Subject

S = TaskState
WAITING = frozenset({S.SCHEDULED, S.BLOCKED, S.PENDING, S.RETRYING})

TRANSITIONS: Mapping[TaskState, frozenset[TaskState]] = {
    S.SCHEDULED: frozenset({S.PENDING, S.BLOCKED, S.CANCELLED, S.EXPIRED}),
    S.BLOCKED: frozenset({S.PENDING, S.SCHEDULED, S.CANCELLED, S.EXPIRED}),
    S.PENDING: frozenset({S.RUNNING, S.SCHEDULED, S.CANCELLED, S.EXPIRED, S.FAILED}),
    S.RUNNING: frozenset({S.COMPLETED, S.RETRYING, S.FAILED, S.CANCELLED, S.PENDING, S.SCHEDULED, S.BLOCKED}),
    S.RETRYING: frozenset({S.PENDING, S.BLOCKED, S.CANCELLED, S.EXPIRED}),
    S.COMPLETED: frozenset(),
    S.FAILED: frozenset({S.PENDING, S.BLOCKED}),
    S.CANCELLED: frozenset({S.PENDING, S.SCHEDULED, S.BLOCKED}),
    S.EXPIRED: frozenset(),
}
"""Pending to scheduled is for a task that gets another time, to failed for a corrupt record; running to pending is for
a lease returned or lost, running to scheduled for one whose handler sleeps, running to blocked for one that waits for
its children. A cancelled task can be restored.

To blocked is for a task whose batch has no free slot (`max_running`) when it would become pending; blocked to
scheduled is for one whose parents ended before its due time.
"""

RQ_STATUS: Mapping[TaskState, str] = {
    S.SCHEDULED: "scheduled",
    S.BLOCKED: "deferred",
    S.PENDING: "queued",
    S.RUNNING: "started",
    S.RETRYING: "scheduled",
    S.COMPLETED: "finished",
    S.FAILED: "failed",
    S.CANCELLED: "canceled",
    S.EXPIRED: "canceled",
}
"""The status that RQ's own tools show for each state; the scripts write it in the same step."""


SUSPENDED = "TaskSuspended"
"""The type of the error of an interrupted attempt whose handler sleeps or waits."""


TASK_ID = re.compile(r"[A-Za-z0-9_-]{1,128}")
"""Valid ids of tasks and batches. The longest belong to deliveries for tasks of schedules: `NAME-DUE-hook-1`."""

KEY = re.compile(r"[A-Za-z0-9_.:@/-]{1,128}")
LIMIT_KEY = re.compile(r"[A-Za-z0-9._-]{1,100}")

ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_PAIRS = [a + b for a in ALPHABET for b in ALPHABET]


def new_task_id(mark: str = "") -> str:
    """Returns a ULID: 26 characters, sortable by the millisecond of its creation, 80 random bits; then the mark.

    The mark names the store where the task is made (`id_suffix` of `store_number.py`).
    The layout follows the ULID specification (48 bits of time, then 80 bits of randomness, base 32 by
    Crockford), so ids of one minute are adjacent in every listing and never need escaping in a path.
    """
    return in_base32((time.time_ns() // 1_000_000) << 80 | int.from_bytes(os.urandom(10)), 130) + mark


def in_base32(number: int, bits: int) -> str:
    """Returns a number in the digits of an id, encoded two at a time; `bits` is a multiple of ten."""
    pairs = _PAIRS
    return "".join([pairs[number >> shift & 1023] for shift in range(bits - 10, -1, -10)])


class Conflict(StrEnum):
    """The handling of a new task whose unique key another task holds."""

    REFUSE = "refuse"
    EXISTING = "existing"
    REPLACE = "replace"


@dataclass(frozen=True, slots=True, kw_only=True)
class Unique:
    """A key that one task of a type can hold: from its submission until it starts or ends, or for a time.

    `client` is the submitter, where callers have names, and `by` the same with the API key that was used.
    """

    key: str
    until: Literal["start", "end"] | timedelta = "end"
    on_conflict: Conflict = Conflict.REFUSE
    client: str = ""
    by: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parent:
    """A task that another one waits for."""

    task_id: str
    on: On = On.SUCCESS


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchPlace:
    """The batch of a task, and its place there."""

    batch_id: str
    index: int


WEBHOOK_TYPE = "firmq.webhook"
"""The type of webhook deliveries; only the step that ends a task creates them."""

RQ_JOB_TYPE = "firmq.rq-job"
"""The type of tasks that run a job of an RQ program; only the adoption of the job creates them."""

RQ_TYPE = "rq"
"""The type of tasks that enqueue a job of RQ and wait for its end."""

INTERNAL_TYPES = frozenset((WEBHOOK_TYPE, RQ_JOB_TYPE))
"""The types that are neither submitted nor scheduled."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Webhook:
    """The URL to call when a task has ended: in which final states (none given: all), and its retry policy."""

    url: str
    events: tuple[str, ...] = ()
    retry: Changes | None = None


AS_GIVEN = ("limit_key", "fair_key", "score")
"""Options that pass from a request to the record, and back to an answer, as they are: texts or numbers."""


def as_given(source: object) -> dict[str, Any]:
    """Returns these options of a body, a task or a schedule."""
    return {name: getattr(source, name) for name in AS_GIVEN}


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskOptions:
    """The options of a task that a schedule hands on to its tasks.

    `retry` overrides parts of the type's retry policy, by the names of `RetryPolicy`'s fields, durations in seconds.
    """

    type: str
    queue: str
    retry: Changes | None = None
    tags: tuple[str, ...] = ()
    limit_key: str | None = field(default=None, metadata={"pattern": LIMIT_KEY})
    fair_key: str | None = field(default=None, metadata={"pattern": KEY})
    score: float | None = None
    webhook: Webhook | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NewTask(TaskOptions):
    """A new task, already validated.

    `data` is JSON text or a reference to it. `delay` counts from the moment Redis stores the task; `run_at` is an
    instant; at most one of the two. `after_batch` is a batch that must have ended first.
    """

    id: str
    data: str | PayloadReference
    delay: timedelta | None = None
    run_at: datetime | None = None
    expires_in: timedelta | None = None
    timeout: timedelta | None = None
    meta: Mapping[str, str] | None = None
    unique: Unique | None = None
    parents: tuple[Parent, ...] = ()
    on_parent_failure: OnParentFailure = OnParentFailure.CANCEL
    batch: BatchPlace | None = None
    after_batch: str | None = None
    submitted_by: str = ""

    @property
    def subject(self) -> Subject:
        """Returns the task as spans describe it."""
        return Subject(id=self.id, type=self.type, queue=self.queue)

    def with_trace(self, traceparent: str | None) -> NewTask:
        """Returns the task as part of a trace."""
        return replace(self, meta={**(self.meta or {}), TRACEPARENT: traceparent}) if traceparent else self


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorInfo:
    """Why an attempt did not succeed: class name, message and, where known, traceback and place."""

    type: str
    message: str
    traceback: str | None = None
    place: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class InnerSpan:
    """A step of a handler, such as an HTTP call: its start, counted from the attempt's, and its duration."""

    name: str
    after: timedelta
    took: timedelta
    failed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One run of a task. Instants are by Redis' clock; a running attempt has no end and no outcome."""

    number: int
    worker: str | None
    enqueued_at: datetime | None
    started_at: datetime | None
    ended_at: datetime | None = None
    outcome: Outcome | None = None
    error: ErrorInfo | None = None
    retry_delay: timedelta | None = None
    trace_id: str | None = None
    app_version: str | None = None
    logs: tuple[str, ...] = ()
    spans: tuple[InnerSpan, ...] = ()
    spans_left_out: int = 0

    @property
    def suspended(self) -> bool:
        """Returns whether it has ended because its handler sleeps, or waits for a signal."""
        return self.error is not None and self.error.type == SUSPENDED


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """Progress that a running handler reports: a fraction from 0 to 1 and a few words."""

    fraction: float
    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskSummary:
    """A task as shown in a list."""

    id: str
    type: str
    state: TaskState
    queue: str
    attempt: int
    failures: int
    crashes: int
    created_at: datetime | None
    started_at: datetime | None = None
    ended_at: datetime | None = None
    due_at: datetime | None = None
    worker: str | None = None
    ran_on: str | None = None
    """The worker of the last attempt; `worker` is set only while it runs."""
    tags: tuple[str, ...] = ()
    error: ErrorInfo | None = None
    progress: Progress | None = None
    submitted_by: str | None = None
    awaits: str | None = None
    """The wait for which its handler has suspended it: a step, a signal, or children."""
    score: float | None = None
    """Its order in its queue; for a task that was submitted without one, when it was enqueued (milliseconds)."""
    corrupt: str | None = None
    archived: bool = False
    """Whether it is in the history only."""

    @property
    def signal(self) -> str | None:
        """Returns the name of the signal that it waits for."""
        return self.awaits.removeprefix(SIGNAL) if self.awaits and self.awaits.startswith(SIGNAL) else None

    @property
    def ran(self) -> timedelta | None:
        """Returns how long its last attempt ran; None unless it has ended."""
        return self.ended_at - self.started_at if self.ended_at and self.started_at else None


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskDetail:
    """Everything on record about a task. `data` and `result` are parsed JSON, or a PayloadReference until it is read.

    `children` are the first of the tasks that depend on it. `throttled_by` is set while it waits outside its queue's
    list: the limit that it waits for, "worker" for one that can run it, or "" for the turn of its tenant. `refusal`
    is why versions of its type refused its data. `steps` are the stored ones, in the order in which they began.
    `deliveries` is the number of deliveries of its `webhook`; `delivery_of` is the task whose end this one delivers.
    """

    summary: TaskSummary
    data: Any
    result: Any = None
    attempts: tuple[Attempt, ...] = ()
    timeout: timedelta | None = None
    retry: Changes = field(default_factory=dict)
    expires_at: datetime | None = None
    cancel_requested: str | None = None
    unique_key: str | None = None
    parents: tuple[Parent, ...] = ()
    on_parent_failure: OnParentFailure = OnParentFailure.CANCEL
    batch: BatchPlace | None = None
    after_batch: str | None = None
    limit_key: str | None = None
    fair_key: str | None = None
    score: float | None = None
    """The score that it was given; `summary` has one in any case."""
    throttled_by: str | None = None
    pinned_to: str | None = None
    refusal: str | None = None
    children: tuple[str, ...] = ()
    children_count: int = 0
    webhook: Webhook | None = None
    deliveries: int = 0
    delivery_of: str | None = None
    steps: tuple[Step, ...] = ()
    meta: Mapping[str, str] = field(default_factory=dict)
