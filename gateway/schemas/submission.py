"""A task as it is submitted, and what is said of it then."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, ConfigDict, Field, WithJsonSchema
from pydantic.functional_validators import AfterValidator, model_validator

from gateway.schemas.values import (
    MAX_UNIQUE,
    Body,
    Delay,
    Instant,
    Key,
    LimitKey,
    OnParentFailureWord,
    OnWord,
    Priority,
    SparseView,
    Tag,
    TaskId,
    _callable_url,
    _expanded,
    _not_too_far,
)
from shared.domain.task import Conflict, TaskState
from shared.domain.task_fields import (
    MOST_TAGS,
    Events,
    ExpiresIn,
    Jitter,
    Multiplier,
    Pauses,
    Retries,
    RetrySeconds,
    Timeout,
)
from shared.http.egress_policy import LONGEST as LONGEST_URL


class RetryOverrides(Body):
    """What this task changes in the retry policy of its type."""

    max_retries: Retries | None = Field(None, description="Retries after the first attempt.")
    initial_delay: RetrySeconds | None = Field(None, description="Seconds before the first retry.")
    multiplier: Multiplier | None = Field(None, description="Factor from one delay to the next.")
    max_delay: RetrySeconds | None = Field(None, description="Longest delay in seconds.")
    jitter: Jitter | None = Field(None, description="Spreads each delay by up to this share of it.")
    pauses: Pauses | None = Field(
        None,
        description="Seconds before each retry, in place of the backoff; max_retries is how many there are.",
    )


class DependencyBody(Body):
    """A task that has to end first: by its id, or by the place or the name that it has in the same batch."""

    task_id: TaskId | None = Field(None, description="A task that exists.")
    item: int | Annotated[str, Field(min_length=1, max_length=64)] | None = Field(
        None, description="In a batch only: the place (from 0) or the name (`item`) of another of its tasks."
    )
    on: OnWord = Field("success", description="`success` (the default): it must complete; `end`: any end will do.")

    @model_validator(mode="after")
    def _one_task(self) -> DependencyBody:
        if (self.task_id is None) == (self.item is None):
            raise ValueError("must name one task: by task_id, or in a batch by item")
        return self


Dependency = Annotated[
    DependencyBody,
    BeforeValidator(_expanded),
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
    events: Events | None = Field(None, description="Which ends are told; none given: every one.")
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
    expires_in: ExpiresIn | None = Field(None, description="Seconds from now after which it must not start any more.")
    timeout: Timeout | None = Field(None, description="Seconds that one attempt may take.")
    max_retries: Retries | None = Field(None, description="Short for retry.max_retries.")
    retry: RetryOverrides | None = Field(None, description="What differs from the retry policy of the type.")
    tags: Annotated[list[Tag], Field(max_length=MOST_TAGS)] | None = Field(
        None, description="Words to find it by: GET /tasks?tag=…"
    )
    unique_key: Key | None = Field(None, description="No two tasks of the type hold one key at the same time.")
    unique_until: Literal["start", "end"] | Annotated[float, Field(strict=True, ge=0.001, le=MAX_UNIQUE)] = Field(
        "end",
        description="How long it holds its unique_key: until it starts (`start`), until it has ended (`end`, the "
        "default), or for so many seconds whatever becomes of it.",
    )
    on_conflict: Annotated[Conflict, Field(strict=False)] = Field(
        Conflict.REFUSE,
        description="When another task holds the unique_key: refuse this one (409, the default), answer with the "
        "existing one (200), or replace that one if it has not started.",
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

    def retry_overrides(self) -> dict[str, float | list[float]]:
        """What differs from the retry policy of the type."""
        changes = self.retry.model_dump(exclude_none=True) if self.retry else {}
        if self.max_retries is not None:
            changes["max_retries"] = self.max_retries
        return changes


class TaskAccepted(SparseView):
    """A task that is kept from now on. `warnings` say why it may wait for long: no live worker has its type."""

    task_id: str
    status: TaskState
    type: str
    priority: str
    warnings: list[str] | None = None
