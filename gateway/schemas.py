"""What requests may hold and what answers look like: checked at the door, printed in the OpenAPI document."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationInfo, WithJsonSchema
from pydantic.functional_validators import AfterValidator, model_validator

from gateway.wording import choices, shown
from shared.outside import LONGEST as LONGEST_URL
from shared.outside import Outside
from shared.tasks import Conflict, On, OnParentFailure, Outcome, TaskState

MAX_TIMEOUT = 7 * 86400
MAX_UNIQUE = 366 * 86400
_RFC_3339 = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt ][0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]+)?(?:[Zz]|[ +-][0-9]{2}:[0-9]{2})"
)
_TASK_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")
_TAG = re.compile(r"[A-Za-z0-9_.:@/-]{1,64}")
_NAME = re.compile(r"[A-Za-z0-9._-]{1,100}")
_KEY = re.compile(r"[A-Za-z0-9_.:@/-]{1,128}")

# --- Values ------------------------------------------------------------------------------------------------------


def _instant(value: object) -> object:
    """RFC 3339. A plus sign in a query that was not escaped arrives as a space, and is taken as what was meant."""
    if value is None:
        return None
    if isinstance(value, str) and _RFC_3339.fullmatch(value):
        try:
            return datetime.fromisoformat(value[:10] + "T" + value[11:].upper().replace(" ", "+"))
        except ValueError as error:
            raise ValueError(f"is no moment that exists: {error}") from None
    raise ValueError(f"must be a moment such as 2030-01-31T12:00:00Z, got {shown(value)}")


def _within_delay(value: float, info: ValidationInfo) -> float:
    most = info.context["max_delay"] if info.context else float("inf")
    if not 0 <= value <= most:
        raise ValueError(f"must be from 0 to {most:.16g} seconds, got {shown(value)}")
    return value


def _not_too_far(value: datetime, info: ValidationInfo) -> datetime:
    # This machine's clock is good enough for a bound of a year; when the task runs is decided by Redis' clock.
    most = info.context["max_delay"] if info.context else float("inf")
    if value.timestamp() - time.time() > most:
        raise ValueError(f"must be at most {most:.16g} seconds ahead")
    if value.timestamp() < 0:
        raise ValueError("must be later than 1970")
    return value


def _priority(value: str, info: ValidationInfo) -> str:
    queues = info.context["priorities"] if info.context else {}
    if value not in queues:
        raise ValueError(f"must be one of {choices(queues)}, got {shown(value)}")
    return str(queues[value])


def _tag(value: str) -> str:
    if not _TAG.fullmatch(value):
        raise ValueError(f"must be 1 to 64 characters out of A-Z a-z 0-9 _ . : @ / -, got {shown(value)}")
    return value


def _key(value: str) -> str:
    if not _KEY.fullmatch(value):
        raise ValueError(f"must be 1 to 128 characters out of A-Z a-z 0-9 _ . : @ / -, got {shown(value)}")
    return value


def _task_id(value: str) -> str:
    if not _TASK_ID.fullmatch(value):
        raise ValueError(f"must be the id of a task, got {shown(value)}")
    return value


def _one_of(words: type[StrEnum]) -> Callable[[str], str]:
    def check(value: str) -> str:
        if value not in list(words):
            raise ValueError(f"must be one of {choices(list(words))}, got {shown(value)}")
        return value

    return check


def _spelled_out(value: object) -> object:
    """A dependency may be written as no more than the id of the task, or its place in the same batch."""
    if isinstance(value, str):
        return {"task_id": value}
    return {"item": value} if isinstance(value, int) and not isinstance(value, bool) else value


def _callable_url(value: str, info: ValidationInfo) -> str:
    outside = info.context.get("outside") if info.context else Outside()
    if outside is None:
        raise ValueError("cannot be called: webhooks are off until WEBHOOK_SECRETS is set")
    outside.read(value)
    return value


def _limit_key(value: str) -> str:
    if not _NAME.fullmatch(value):
        raise ValueError(f"must be 1 to 100 characters out of A-Z a-z 0-9 _ . -, got {shown(value)}")
    return value


Instant = Annotated[datetime, BeforeValidator(_instant), WithJsonSchema({"type": "string", "format": "date-time"})]
Delay = Annotated[
    float, Field(strict=True), AfterValidator(_within_delay), WithJsonSchema({"type": "number", "minimum": 0})
]
Priority = Annotated[str, AfterValidator(_priority)]
Tag = Annotated[str, AfterValidator(_tag), WithJsonSchema({"type": "string", "pattern": f"^{_TAG.pattern}$"})]
Key = Annotated[str, AfterValidator(_key), WithJsonSchema({"type": "string", "pattern": f"^{_KEY.pattern}$"})]
TaskId = Annotated[
    str, AfterValidator(_task_id), WithJsonSchema({"type": "string", "pattern": f"^{_TASK_ID.pattern}$"})
]
OnWord = Annotated[str, AfterValidator(_one_of(On)), WithJsonSchema({"enum": [each.value for each in On]})]
OnParentFailureWord = Annotated[
    str, AfterValidator(_one_of(OnParentFailure)), WithJsonSchema({"enum": [each.value for each in OnParentFailure]})
]
LimitKey = Annotated[
    str, AfterValidator(_limit_key), WithJsonSchema({"type": "string", "pattern": f"^{_NAME.pattern}$"})
]
Retries = Annotated[int, Field(strict=True, ge=0, le=1000)]
RetrySeconds = Annotated[float, Field(strict=True, ge=0, le=10 * 365 * 86400)]

# --- Requests ----------------------------------------------------------------------------------------------------


class Body(BaseModel):
    """A body: no field that is not known, no value of another kind."""

    model_config = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)


class Query(BaseModel):
    """The parameters of a query: texts that are read as what they stand for."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)


class RetryOverrides(Body):
    """What this task changes in the retry policy of its type."""

    max_retries: Retries | None = Field(None, description="Retries after the first attempt.")
    initial_delay: RetrySeconds | None = Field(None, description="Seconds before the first retry.")
    multiplier: Annotated[float, Field(strict=True, ge=1, le=100)] | None = Field(
        None, description="Factor from one delay to the next."
    )
    max_delay: RetrySeconds | None = Field(None, description="Longest delay in seconds.")
    jitter: Annotated[float, Field(strict=True, ge=0, le=1)] | None = Field(
        None, description="Spreads each delay by up to this share of it."
    )


class DependencyBody(Body):
    """A task that has to end first: by its id, or by the place or the name that it has in the same batch."""

    task_id: TaskId | None = Field(None, description="A task that exists.")
    item: int | Annotated[str, Field(min_length=1, max_length=64)] | None = Field(
        None, description="In a batch only: the place (from 0) or the name (`item`) of another of its tasks."
    )
    on: OnWord = Field("success", description="`success`: it must complete; `end`: any end will do.")

    @model_validator(mode="after")
    def _one_task(self) -> DependencyBody:
        if (self.task_id is None) == (self.item is None):
            raise ValueError("must name one task: by task_id, or in a batch by item")
        return self


Dependency = Annotated[
    DependencyBody,
    BeforeValidator(_spelled_out),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "string", "description": "The id of a task that must complete."},
                {"type": "integer", "description": "The place of a task of the same batch that must complete."},
                {"$ref": "#/components/schemas/DependencyBody"},
            ]
        }
    ),
]


class WebhookBody(Body):
    """Whom to tell when the task has ended."""

    url: Annotated[str, AfterValidator(_callable_url)] = Field(
        description="https:// or http:// of a host that is reached over the public internet.",
        max_length=LONGEST_URL,
        json_schema_extra={"format": "uri"},
    )
    events: (
        Annotated[list[Literal["completed", "failed", "cancelled", "expired"]], Field(min_length=1, max_length=4)]
        | None
    ) = Field(None, description="Which ends are told; none given: every one.")
    retry: RetryOverrides | None = Field(None, description="What differs from the retry policy of deliveries.")


class NewTaskBody(Body):
    """A task to run."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"type": "process", "data": "a text to count", "priority": "high"}]}
    )

    type: str = Field(description="A registered task type; GET /types lists them.", max_length=100)
    data: Any = Field(description="Any JSON that fits the schema of the type.")
    priority: Priority | None = Field(
        None, description="A priority of GET /queues; `default` or none: the default one."
    )
    delay: Delay | None = Field(None, description="Seconds to wait before it may run. Not together with run_at.")
    run_at: Annotated[Instant, AfterValidator(_not_too_far)] | None = Field(
        None, description="When it may run. Not together with delay."
    )
    expires_in: Annotated[float, Field(strict=True, gt=0, le=10 * 365 * 86400)] | None = Field(
        None, description="Seconds from now after which it must not start any more."
    )
    timeout: Annotated[float, Field(strict=True, gt=0, le=MAX_TIMEOUT)] | None = Field(
        None, description="Seconds that one attempt may take."
    )
    max_retries: Retries | None = Field(None, description="Short for retry.max_retries.")
    retry: RetryOverrides | None = Field(None, description="What differs from the retry policy of the type.")
    tags: Annotated[list[Tag], Field(max_length=16)] | None = Field(
        None, description="Words to find it by: GET /tasks?tag=…"
    )
    unique_key: Key | None = Field(None, description="No two tasks of the type hold one key at the same time.")
    unique_until: Literal["start", "end"] | Annotated[float, Field(strict=True, ge=0.001, le=MAX_UNIQUE)] = Field(
        "end",
        description="How long it holds its unique_key: until it starts, until it has ended, or for so many seconds "
        "whatever becomes of it.",
    )
    on_conflict: Annotated[Conflict, Field(strict=False)] = Field(
        Conflict.REFUSE,
        description="When another task holds the unique_key: refuse this one (409), answer with the existing one "
        "(200), or replace that one if it has not started.",
    )
    depends_on: Annotated[list[Dependency], Field(max_length=1000)] | None = Field(
        None, description="Tasks that must end first; their results are there for its handler."
    )
    on_parent_failure: OnParentFailureWord | None = Field(
        None,
        description="When a task whose success it wants ends otherwise: `cancel` it (the default), `release` it all "
        "the same, or `wait` for as long as that one is a dead letter that may be retried.",
    )
    limit_key: LimitKey | None = Field(
        None, description="Puts it under the limit of this key beside that of its type: PUT /limits/keys/…"
    )
    fair_key: Key | None = Field(
        None, description="Whose task it is: within one priority those who have many let others have their turn."
    )

    webhook: WebhookBody | None = Field(None, description="Whom to tell by a signed POST when it has ended.")

    @model_validator(mode="after")
    def _fit_together(self) -> NewTaskBody:
        if self.delay is not None and self.run_at is not None:
            raise ValueError("has both delay and run_at: send one of them")
        if self.max_retries is not None and self.retry is not None and self.retry.max_retries is not None:
            raise ValueError("has both max_retries and retry.max_retries: send one of them")
        if self.expires_in is not None and self.delay is not None and self.expires_in <= self.delay:
            raise ValueError("would expire before its delay is over: make expires_in larger than delay")
        if self.unique_key is None and self.model_fields_set & {"unique_until", "on_conflict"}:
            raise ValueError("has unique_until or on_conflict, but no unique_key that they could be about")
        return self

    def retry_overrides(self) -> dict[str, float]:
        """What differs from the retry policy of the type."""
        changes = self.retry.model_dump(exclude_none=True) if self.retry else {}
        if self.max_retries is not None:
            changes["max_retries"] = self.max_retries
        return changes


class BatchItemBody(NewTaskBody):
    """A task of a batch."""

    item: Annotated[str, Field(min_length=1, max_length=64)] | None = Field(
        None, description="A name within the batch, for other tasks to depend on, and to know it by when sent again."
    )


class FollowUpBody(NewTaskBody):
    """The task that follows a batch; its handler has the counts of the batch."""

    @model_validator(mode="after")
    def _depends_on_the_batch(self) -> FollowUpBody:
        if self.depends_on is not None:
            raise ValueError("depends on the batch: leave depends_on out")
        return self


class BatchTermsBody(Body):
    """What holds for a batch as a whole."""

    name: Annotated[str, Field(max_length=200)] | None = Field(None, description="What people know it by.")
    max_running: Annotated[int, Field(ge=1, le=1_000_000)] | None = Field(
        None, description="How many of its tasks may wait for a worker or run at once; the others are blocked."
    )
    stop_on_error: Annotated[int, Field(ge=1)] | None = Field(
        None, description="When so many of its tasks have failed for good, the others are cancelled."
    )
    then: FollowUpBody | None = Field(None, description="A task that runs when all have ended, however they ended.")


class BatchBody(BatchTermsBody):
    """Many tasks at once; each is checked by itself, so one that is wrong does not sink the rest."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"tasks": [{"type": "process", "data": "one"}, {"type": "process", "data": "two"}]}]
        }
    )

    tasks: Annotated[list[Any], Field(min_length=1, max_length=10_000)] = Field(
        description="Tasks as POST /tasks takes them; `item` may name one, and `depends_on` may say which others of "
        "the batch must end first, by their place or their name."
    )


class BatchLineBody(Body):
    """The first line of a stream may say what holds for the whole batch; every other line is a task."""

    batch: BatchTermsBody


class PauseBody(Body):
    """Why a queue is paused."""

    reason: str = Field(description="Shown to everybody who looks at the queue.", min_length=1, max_length=500)


class PageQuery(Query):
    """Which page of a list."""

    limit: int = Field(50, ge=1, le=200, description="Items on the page; a page may hold fewer and not be the last.")
    cursor: str | None = Field(None, max_length=200, description="`next_cursor` of the page before.")


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


# --- Answers -----------------------------------------------------------------------------------------------------


class View(BaseModel):
    """A part of an answer. Every field is always there, null when there is nothing to say."""

    model_config = ConfigDict(extra="forbid", json_schema_serialization_defaults_required=True)


class SparseView(BaseModel):
    """A part that comes by the thousand: fields with nothing to say are left out."""

    model_config = ConfigDict(extra="forbid")


class DependencyView(View):
    """A task that had to end first, and which end."""

    task_id: str
    on: On


class TaskAccepted(View):
    """A task that is kept from now on."""

    task_id: str
    status: TaskState
    type: str
    priority: str


class BatchItem(SparseView):
    """What became of one task of a batch, in the place in which it was sent: its id and state, or a problem.

    A problem beside an id means that Redis did not answer: the task may be stored, and GET /tasks/{id} tells.
    """

    task_id: str | None = None
    status: TaskState | None = None
    problem: dict[str, Any] | None = None


class BatchAccepted(View):
    """What became of a batch."""

    batch_id: str | None
    accepted: int
    refused: int
    items: list[BatchItem]


class BatchLine(SparseView):
    """A line of the answer to a stream: what became of one line of the request, by its place among the tasks.

    The first line has only the `batch_id`; the last has `complete`, and how many were accepted and refused. Without it
    the answer was cut off: send the rest again.
    """

    batch_id: str | None = None
    index: int | None = None
    task_id: str | None = None
    status: TaskState | None = None
    problem: dict[str, Any] | None = None
    complete: bool | None = None
    accepted: int | None = None
    refused: int | None = None


class BatchView(View):
    """A batch at a glance."""

    batch_id: str
    name: str
    status: Literal["receiving", "running", "ended"]
    progress: float = Field(description="The share of its tasks that has ended.")
    total: int
    ended: int
    counts: dict[TaskState, int]
    removed: int = Field(description="Tasks whose records are gone; they count where they ended.")
    max_running: int | None
    stop_on_error: int | None
    then: str | None = Field(description="The task that follows.")
    created_at: datetime
    ended_at: datetime | None
    stopped: str | None = Field(description="Why none of its tasks starts any more.")
    stopped_at: datetime | None
    work: str | None = Field(description="What goes on with all of them: cancel, stop or retry.")


class BatchList(View):
    """Batches, newest first."""

    items: list[BatchView]
    next_cursor: NextCursor = None


class BatchItemView(View):
    """A task in its place in a batch; `task` is null when its record is gone."""

    index: int
    task_id: str
    task: TaskView | None


class BatchItemList(View):
    """Tasks of a batch in the order in which they were sent."""

    items: list[BatchItemView]
    next_cursor: NextCursor = None


class BatchItemsQuery(PageQuery):
    """Which tasks of a batch."""

    status: TaskState | None = None


class BatchQuery(Query):
    """Where a stream goes on."""

    start: int = Field(0, ge=0, le=10**9, description="For a stream of the rest: the place of its first task.")


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
    aside_for: str | None = Field(
        description="While it stands aside: the limit that it waits for; empty for the turn of its fair_key."
    )
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


NextCursor = Annotated[str | None, Field(description="Where the next page begins; null on the last page.")]


class TaskList(View):
    """Tasks, newest first."""

    items: list[TaskView]
    next_cursor: NextCursor = None


class RunningTaskView(View):
    """What one executor is doing."""

    task_id: str
    type: str
    seconds: float


class WorkerView(View):
    """A worker as it last announced itself."""

    name: str
    state: str
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


class WorkerList(View):
    """The live workers by name."""

    items: list[WorkerView]
    next_cursor: NextCursor = None


class RetryPolicyView(View):
    """When a failed attempt is tried again; delays in seconds."""

    max_retries: int
    initial_delay: float
    multiplier: float
    max_delay: float
    jitter: float


class TypeView(View):
    """A task type as workers published it."""

    name: str
    description: str
    data_schema: dict[str, Any] = Field(description="JSON Schema of `data`.")
    timeout_seconds: float | None
    retry: RetryPolicyView = Field(description="The retry policy of its tasks.")


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


class FieldError(BaseModel):
    """What is wrong with one field."""

    detail: str
    pointer: str | None = Field(None, description="JSON pointer into the body.")
    field: str | None = Field(None, description="The same for people: data.items[2]")
    parameter: str | None = Field(None, description="A parameter of the query.")


class Problem(BaseModel):
    """Why a request was not carried out (RFC 9457)."""

    model_config = ConfigDict(extra="allow")

    type: str = Field(description="Stable; GET of it explains it.")
    title: str
    status: int
    detail: str = Field(description="What to change.")
    instance: str
    request_id: str | None
    errors: list[FieldError] | None = Field(None, description="Every field that is wrong.")
