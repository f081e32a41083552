"""Types of single values with their validators, and the base class and common parts of bodies."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from datetime import datetime
from enum import StrEnum
from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationInfo, WithJsonSchema
from pydantic.functional_validators import AfterValidator

from firmq.shared.domain.egress_policy import LONGEST as LONGEST_URL
from firmq.shared.domain.egress_policy import EgressPolicy
from firmq.shared.domain.queue_selection import ANY_QUEUE_NAME, DEFAULT, QUEUE_NAME
from firmq.shared.domain.task import KEY, LIMIT_KEY, TASK_ID, On, OnParentFailure, Webhook
from firmq.shared.domain.task_fields import TAG, Events, Jitter, Multiplier, Pauses, Retries, RetrySeconds
from firmq.shared.domain.validation_messages import choices, shown

MAX_UNIQUE = 366 * 86400
_NUMBER = re.compile(r"-?[0-9]+(?:\.[0-9]+)?")
_RFC_3339 = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt ][0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]+)?(?:[Zz]|[ +-][0-9]{2}:[0-9]{2})"
)


def _instant(value: object) -> object:
    """Parses RFC 3339. An unescaped plus sign in a query arrives as a space and is accepted as a plus sign."""
    if value is None:
        return None
    if isinstance(value, str) and _RFC_3339.fullmatch(value):
        try:
            return datetime.fromisoformat(value[:10] + "T" + value[11:].upper().replace(" ", "+"))
        except ValueError as error:
            raise ValueError(f"is not a valid time: {error}") from None
    raise ValueError(f"must be a time such as 2030-01-31T12:00:00Z, got {shown(value)}")


def _within_delay(value: float, info: ValidationInfo) -> float:
    most = info.context["max_delay"] if info.context else float("inf")
    if not 0 <= value <= most:
        raise ValueError(f"must be from 0 to {most:.16g} seconds, got {shown(value)}")
    return value


def _not_too_far(value: datetime, info: ValidationInfo) -> datetime:
    # The local clock suffices for a bound of a year; the clock of Redis decides when the task runs.
    most = info.context["max_delay"] if info.context else float("inf")
    if value.timestamp() - time.time() > most:
        raise ValueError(f"must be at most {most:.16g} seconds ahead")
    if value.timestamp() < 0:
        raise ValueError("must be later than 1970")
    return value


def _no_number(value: object, info: ValidationInfo) -> object:
    queues = info.context["priorities"] if info.context else {}
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if number or (isinstance(value, str) and _NUMBER.fullmatch(value) and value not in queues):
        hint = "an order inside a queue is a number in score, the lower the sooner"
        raise ValueError(f"must be one of {choices(queues)}, got {shown(value)}: {hint}")
    return value


def _priority(value: str, info: ValidationInfo) -> str:
    queues = info.context["priorities"] if info.context else {}
    if value not in queues:
        raise ValueError(f"must be one of {choices(queues)}, got {shown(value)}")
    return str(queues[value])


def _queue(value: str, info: ValidationInfo) -> str:
    if not QUEUE_NAME.fullmatch(value):
        raise ValueError(f"must be 1 to 64 characters of A-Z a-z 0-9 . _ -, got {shown(value)}")
    return str(info.context["priorities"]["default"]) if info.context and value == DEFAULT else value


def _any_queue(value: str, info: ValidationInfo) -> str:
    return value if value.startswith("rq:") and ANY_QUEUE_NAME.fullmatch(value) else _queue(value, info)


def _tag(value: str) -> str:
    if not TAG.fullmatch(value):
        raise ValueError(f"must be 1 to 64 characters of A-Z a-z 0-9 _ . : @ / -, got {shown(value)}")
    return value


def _key(value: str) -> str:
    if not KEY.fullmatch(value):
        raise ValueError(f"must be 1 to 128 characters of A-Z a-z 0-9 _ . : @ / -, got {shown(value)}")
    return value


def _task_id(value: str) -> str:
    if not TASK_ID.fullmatch(value):
        raise ValueError(f"must be a task id, got {shown(value)}")
    return value


def one_of(words: type[StrEnum]) -> Callable[[str], str]:
    """Returns a validator of the words of an enumeration."""

    def check(value: str) -> str:
        if value not in list(words):
            raise ValueError(f"must be one of {choices(list(words))}, got {shown(value)}")
        return value

    return check


def _expanded(value: object) -> object:
    """Expands the short forms of a dependency: the id of a task, or its index in the same batch."""
    if isinstance(value, str):
        return {"task_id": value}
    return {"item": value} if isinstance(value, int) and not isinstance(value, bool) else value


def _callable_url(value: str, info: ValidationInfo) -> str:
    egress_policy = info.context.get("outside") if info.context else EgressPolicy()
    if egress_policy is None:
        raise ValueError("cannot be called: webhooks are off until WEBHOOK_SECRETS is set")
    egress_policy.read(value)
    return value


def _limit_key(value: str) -> str:
    if not LIMIT_KEY.fullmatch(value):
        raise ValueError(f"must be 1 to 100 characters of A-Z a-z 0-9 _ . -, got {shown(value)}")
    return value


def refuse_two_queues(queue: str | None, priority: str | None) -> None:
    """Raises ValueError for a task that names its queue twice."""
    if queue is not None and priority is not None:
        raise ValueError("has both queue and priority: send one of them")


Instant = Annotated[datetime, BeforeValidator(_instant), WithJsonSchema({"type": "string", "format": "date-time"})]
Delay = Annotated[
    float, Field(strict=True), AfterValidator(_within_delay), WithJsonSchema({"type": "number", "minimum": 0})
]
Priority = Annotated[str, BeforeValidator(_no_number), AfterValidator(_priority)]
QueueName = Annotated[
    str, AfterValidator(_queue), WithJsonSchema({"type": "string", "pattern": f"^{QUEUE_NAME.pattern}$"})
]
AnyQueueName = Annotated[
    str, AfterValidator(_any_queue), WithJsonSchema({"type": "string", "pattern": f"^{ANY_QUEUE_NAME.pattern}$"})
]
Tag = Annotated[str, AfterValidator(_tag), WithJsonSchema({"type": "string", "pattern": f"^{TAG.pattern}$"})]
Key = Annotated[str, AfterValidator(_key), WithJsonSchema({"type": "string", "pattern": f"^{KEY.pattern}$"})]
TaskId = Annotated[str, AfterValidator(_task_id), WithJsonSchema({"type": "string", "pattern": f"^{TASK_ID.pattern}$"})]
OnWord = Annotated[str, AfterValidator(one_of(On)), WithJsonSchema({"enum": [each.value for each in On]})]
OnParentFailureWord = Annotated[
    str, AfterValidator(one_of(OnParentFailure)), WithJsonSchema({"enum": [each.value for each in OnParentFailure]})
]
LimitKey = Annotated[
    str, AfterValidator(_limit_key), WithJsonSchema({"type": "string", "pattern": f"^{LIMIT_KEY.pattern}$"})
]


class Body(BaseModel):
    """Base class of bodies: rejects unknown fields and values of the wrong type."""

    model_config = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)


class RetryOverrides(Body):
    """Overrides of the retry policy of the task type."""

    max_retries: Retries | None = Field(None, description="Retries after the first attempt.")
    initial_delay: RetrySeconds | None = Field(None, description="Seconds before the first retry.")
    multiplier: Multiplier | None = Field(None, description="Factor from one delay to the next.")
    max_delay: RetrySeconds | None = Field(None, description="Longest delay between attempts, in seconds.")
    jitter: Jitter | None = Field(None, description="Spreads each delay by up to this share of it.")
    pauses: Pauses | None = Field(
        None,
        description="Seconds before each retry, instead of the backoff; their number sets max_retries.",
    )


class WebhookBody(Body):
    """A request to call a URL when the task has ended."""

    url: Annotated[str, AfterValidator(_callable_url)] = Field(
        description="An https:// or http:// URL of a host on the public internet.",
        max_length=LONGEST_URL,
        json_schema_extra={"format": "uri"},
    )
    events: Events | None = Field(None, description="End states that are delivered; null: all.")
    retry: RetryOverrides | None = Field(None, description="Overrides of the retry policy of deliveries.")

    def webhook(self) -> Webhook:
        """Returns the webhook in its stored form."""
        retry = self.retry.model_dump(exclude_none=True) if self.retry else None
        return Webhook(url=self.url, events=tuple(dict.fromkeys(self.events or ())), retry=retry)
