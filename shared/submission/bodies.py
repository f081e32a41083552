"""Models of a task submission."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, WithJsonSchema
from pydantic.functional_validators import AfterValidator, model_validator

from firmq.shared.config.settings import Settings
from firmq.shared.domain import validation_messages
from firmq.shared.domain.task import Conflict
from firmq.shared.domain.task_fields import (
    MOST_TAGS,
    ExpiresIn,
    Retries,
    Score,
    Timeout,
)
from firmq.shared.domain.values import (
    MAX_UNIQUE,
    Body,
    Delay,
    Instant,
    Key,
    LimitKey,
    OnParentFailureWord,
    OnWord,
    Priority,
    QueueName,
    RetryOverrides,
    Tag,
    TaskId,
    WebhookBody,
    _expanded,
    _not_too_far,
    refuse_two_queues,
)
from firmq.shared.submission import refusals

if TYPE_CHECKING:
    from firmq.shared.domain.schedule import Schedule
    from firmq.shared.domain.schedule_body import ScheduleBody

B = TypeVar("B", bound=BaseModel)
MOST_PARENTS = 1000
"""Tasks that one task may depend on."""


def context_of(settings: Settings, *, signed: bool = False) -> dict[str, Any]:
    """Returns the context for the validators of bodies; `signed`: webhooks are refused without secrets."""
    priorities = {name: name for name in settings.queues} | {"default": settings.default_priority}
    egress_policy = settings.egress_policy() if settings.takes_webhooks(signed=signed) else None
    return {"priorities": priorities, "max_delay": settings.max_delay, "outside": egress_policy}


def schedule_from(name: str, body: ScheduleBody, default_queue: str) -> Schedule:
    """Returns the schedule of a body. Raises Refusal."""
    try:
        return body.schedule(name, default_queue)
    except ValueError as error:
        raise refusals.invalid([refusals.field_error((), str(error))]) from None


def read_body(model: type[B], value: Any, context: Mapping[str, Any]) -> B:
    """Returns a value as a model. Raises Refusal with each of its mistakes."""
    if not isinstance(value, dict):
        raise refusals.invalid(
            [refusals.field_error((), f"must be a JSON object, got {validation_messages.kind_of(value)}")]
        )
    try:
        return model.model_validate(value, context=context)
    except ValidationError as error:
        mistakes = validation_messages.explain(error, model)
        raise refusals.invalid([refusals.field_error(path, text) for path, text in mistakes]) from None


class DependencyBody(Body):
    """A task that must end first: by id, or by its index or name in the same batch."""

    task_id: TaskId | None = Field(None, description="Id of an existing task.")
    item: int | Annotated[str, Field(min_length=1, max_length=64)] | None = Field(
        None, description="In a batch only: the index (from 0) or the name (`item`) of another of its tasks."
    )
    on: OnWord = Field(
        "success", description="`success` (the default): it must complete; `end`: it must end in any state."
    )

    @model_validator(mode="after")
    def _one_task(self) -> DependencyBody:
        if (self.task_id is None) == (self.item is None):
            raise ValueError("must name one task: set task_id, or item in a batch")
        return self


Dependency = Annotated[
    DependencyBody,
    BeforeValidator(_expanded),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "string", "description": "The id of a task that must complete."},
                {"type": "integer", "description": "The index of a task of the same batch that must complete."},
                {"$ref": "#/components/schemas/DependencyBody"},
            ]
        }
    ),
]


class NewTaskBody(Body):
    """A task to run."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"type": "process", "data": "a text to count", "priority": "high"}]}
    )

    type: str = Field(description="A registered task type; GET /types lists them.", max_length=100)
    data: Any = Field(description="Any JSON that is valid under the schema of the type.")
    queue: QueueName | None = Field(
        None,
        description="The queue to wait in, created by its first task; null: the type's queue, else the default "
        "priority. Excludes priority.",
    )
    priority: Priority | None = Field(
        None, description="One of the configured queues; `default`: the default priority. Excludes queue."
    )
    delay: Delay | None = Field(None, description="Seconds before it may run. Excludes run_at.")
    run_at: Annotated[Instant, AfterValidator(_not_too_far)] | None = Field(
        None, description="Earliest time at which it may run. Excludes delay."
    )
    expires_in: ExpiresIn | None = Field(
        None, description="Seconds from now after which it expires if it has not started."
    )
    timeout: Timeout | None = Field(None, description="Time limit of one attempt, in seconds.")
    max_retries: Retries | None = Field(None, description="Short form of retry.max_retries.")
    retry: RetryOverrides | None = Field(None, description="Overrides of the retry policy of the type.")
    tags: Annotated[list[Tag], Field(max_length=MOST_TAGS)] | None = Field(
        None, description="Words by which lists can be filtered: GET /tasks?tag=…"
    )
    unique_key: Key | None = Field(None, description="At most one task of the type holds a key at a time.")
    unique_until: Literal["start", "end"] | Annotated[float, Field(strict=True, ge=0.001, le=MAX_UNIQUE)] = Field(
        "end",
        description="How long it holds its unique_key: until it starts (`start`), until it has ended (`end`, the "
        "default), or for this many seconds regardless of its state.",
    )
    on_conflict: Annotated[Conflict, Field(strict=False)] = Field(
        Conflict.REFUSE,
        description="When another task holds the unique_key: `refuse` this one (409, the default), return the "
        "`existing` one (200), or `replace` the other one if it has not started.",
    )
    depends_on: Annotated[list[Dependency], Field(max_length=MOST_PARENTS)] | None = Field(
        None, description="Tasks that must end first; their results are available to the handler."
    )
    on_parent_failure: OnParentFailureWord | None = Field(
        None,
        description="When a parent that must complete ends in another state: `cancel` this task (the default), "
        "`release` it to run, or `wait` as long as the parent is a dead letter that may be retried.",
    )
    placement_key: Key | None = Field(
        None,
        description="With several partitions: tasks with the same key are in the same one, so that they can depend on "
        "each other.",
    )
    limit_key: LimitKey | None = Field(
        None, description="Applies the limit of this key in addition to the type's limit: PUT /limits/keys/…"
    )
    fair_key: Key | None = Field(None, description="Tenant of the task: within one queue, tenants take turns.")
    score: Score | None = Field(
        None,
        description="Order of the task among its tenant's tasks in its queue, the lower the sooner; null: when it is "
        "enqueued, in milliseconds since 1970.",
    )
    webhook: WebhookBody | None = Field(None, description="A signed POST to send when the task has ended.")

    @model_validator(mode="after")
    def _fit_together(self) -> NewTaskBody:
        refuse_two_queues(self.queue, self.priority)
        if self.delay is not None and self.run_at is not None:
            raise ValueError("has both delay and run_at: send one of them")
        if self.max_retries is not None and self.retry is not None and self.retry.max_retries is not None:
            raise ValueError("has both max_retries and retry.max_retries: send one of them")
        if self.expires_in is not None and self.delay is not None and self.expires_in <= self.delay:
            raise ValueError("would expire before its delay is over: make expires_in larger than delay")
        if self.unique_key is None and self.model_fields_set & {"unique_until", "on_conflict"}:
            raise ValueError("has unique_until or on_conflict without unique_key: send unique_key, or leave them out")
        return self

    def retry_overrides(self) -> dict[str, float | list[float]]:
        """Returns the overrides of the retry policy of the type."""
        changes = self.retry.model_dump(exclude_none=True) if self.retry else {}
        if self.max_retries is not None:
            changes["max_retries"] = self.max_retries
        return changes
