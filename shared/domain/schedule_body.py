"""The body of a schedule: the task to create, and its times."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, ValidationError, model_validator

from firmq.shared.domain import strict_json
from firmq.shared.domain.egress_policy import EgressPolicy
from firmq.shared.domain.schedule import NOT_TO_BE_SCHEDULED, Missed, Overlap, Schedule, check_cron, check_zone
from firmq.shared.domain.task import INTERNAL_TYPES
from firmq.shared.domain.task_fields import MOST_TAGS_OF_A_SCHEDULE, ExpiresIn, Score, Timeout
from firmq.shared.domain.validation_messages import explain
from firmq.shared.domain.values import (
    Body,
    Key,
    LimitKey,
    Priority,
    QueueName,
    RetryOverrides,
    Tag,
    WebhookBody,
    refuse_two_queues,
)


def _cron(value: str) -> str:
    check_cron(value)
    return value


def _time_zone(value: str) -> str:
    check_zone(value)
    return value


class ScheduleBody(Body):
    """The task to create, and its times: `cron` or `interval`."""

    type: str = Field(description="A registered task type; GET /types lists them.", max_length=100)
    data: Any = Field(None, description="Any JSON that is valid under the schema of the type.")
    queue: QueueName | None = Field(
        None,
        description="The queue of its tasks; null: the type's queue as of now, else the default priority. Excludes "
        "priority.",
    )
    priority: Priority | None = Field(
        None, description="One of the configured queues; `default`: the default priority. Excludes queue."
    )
    cron: Annotated[str, AfterValidator(_cron)] | None = Field(
        None, description="Minute, hour, day, month, weekday; six fields begin with seconds.", max_length=200
    )
    interval: Annotated[int, Field(strict=True, ge=1, le=31_622_400)] | None = Field(
        None, description="Seconds from one due time to the next."
    )
    timezone: Annotated[str, AfterValidator(_time_zone)] = Field(
        "UTC", description="Time zone of `cron`, such as Europe/Berlin; UTC by default.", max_length=64
    )
    missed: Literal["skip", "once", "all"] = Field(
        "once",
        description="How to handle due times missed because no housekeeper ran: create no task (`skip`), one for all "
        "(`once`, the default), or one for each (`all`).",
    )
    missed_limit: Annotated[int, Field(strict=True, ge=1, le=10_000)] = Field(
        100, description="With missed: all, the maximum number of tasks, for the latest due times; 100 by default."
    )
    overlap: Literal["allow", "skip", "cancel"] = Field(
        "allow",
        description="When the last task has not ended: run both (`allow`, the default), `skip` this due time, or "
        "`cancel` the last task.",
    )
    timeout: Timeout | None = Field(None, description="Time limit of one attempt, in seconds.")
    expires_in: ExpiresIn | None = Field(None, description="Seconds after which a task expires if it has not started.")
    retry: RetryOverrides | None = Field(None, description="Overrides of the retry policy of the type.")
    tags: Annotated[list[Tag], Field(max_length=MOST_TAGS_OF_A_SCHEDULE)] | None = Field(
        None, description="Tags of its tasks; schedule:NAME is added."
    )
    limit_key: LimitKey | None = Field(
        None, description="Applies the limit of this key to its tasks, in addition to their type's limit."
    )
    fair_key: Key | None = Field(None, description="Tenant of its tasks: within one queue, tenants take turns.")
    score: Score | None = Field(None, description="Order of its tasks in their queue, the lower the sooner.")
    webhook: WebhookBody | None = Field(None, description="A signed POST to send when one of its tasks has ended.")

    @model_validator(mode="after")
    def _one_of_two(self) -> ScheduleBody:
        if (self.cron is None) == (self.interval is None):
            raise ValueError("must have either cron or interval: send one of them")
        refuse_two_queues(self.queue, self.priority)
        return self

    def schedule(self, name: str, default_queue: str) -> Schedule:
        """Returns the schedule. Raises ValueError."""
        fields = {each: getattr(self, each) for each in ScheduleBody.model_fields if each != "priority"}
        changed = {
            "data": strict_json.dump(self.data),
            "queue": self.queue or self.priority or default_queue,
            "missed": Missed(self.missed),
            "overlap": Overlap(self.overlap),
            "retry": self.retry.model_dump(exclude_none=True) if self.retry else None,
            "tags": tuple(self.tags or ()),
            "webhook": self.webhook.webhook() if self.webhook else None,
        }
        return Schedule(name=name, **fields | changed)


def read_declared(
    name: str, entry: Any, queues: Mapping[str, int], default_queue: str, outside: EgressPolicy | None = None
) -> Schedule:
    """Returns a schedule from the configuration file; `outside` limits the target of its webhook. Raises ValueError."""
    if not isinstance(entry, Mapping):
        raise ValueError("must be a mapping with type, and cron or interval")
    if entry.get("type") in INTERNAL_TYPES:
        raise ValueError(NOT_TO_BE_SCHEDULED)
    priorities = {each: each for each in queues} | {"default": default_queue}
    given = {key: value for key, value in entry.items() if value is not None}
    try:
        body = ScheduleBody.model_validate(
            given, context={"priorities": priorities, "outside": outside or EgressPolicy()}
        )
    except ValidationError as error:
        mistakes = explain(error, ScheduleBody)
        raise ValueError(
            "; ".join(": ".join(filter(None, (".".join(map(str, at)), text))) for at, text in mistakes)
        ) from None
    made = body.schedule(name, default_queue)
    # Numbers stay as they are written, 60 or 60.0: a schedule has changed when its text has.
    written: dict[str, Any] = {each: given[each] for each in ("timeout", "expires_in", "retry") if each in given}
    if made.webhook:
        written["webhook"] = replace(made.webhook, retry=given["webhook"].get("retry"))
    return replace(made, data=json.dumps(body.data, sort_keys=True), **written)
