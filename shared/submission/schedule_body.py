"""The body of a schedule: the task to create, and its times."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, model_validator

from firmq.shared.domain import strict_json
from firmq.shared.domain.schedule import Missed, Overlap, Schedule, check_cron, check_zone
from firmq.shared.domain.task_fields import MOST_TAGS_OF_A_SCHEDULE, ExpiresIn, Score, Timeout
from firmq.shared.domain.values import Body, Key, LimitKey, Priority, QueueName, Tag, refuse_two_queues
from firmq.shared.submission import refusals
from firmq.shared.submission.bodies import RetryOverrides, WebhookBody
from firmq.shared.submission.task_factory import webhook_of


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


def schedule_of(name: str, body: ScheduleBody, default_queue: str) -> Schedule:
    """Returns the schedule of a body. Raises Refusal."""
    try:
        return Schedule(
            name=name,
            type=body.type,
            data=strict_json.dump(body.data),
            queue=body.queue or body.priority or default_queue,
            cron=body.cron,
            interval=body.interval,
            timezone=body.timezone,
            missed=Missed(body.missed),
            missed_limit=body.missed_limit,
            overlap=Overlap(body.overlap),
            timeout=body.timeout,
            expires_in=body.expires_in,
            retry=body.retry.model_dump(exclude_none=True) if body.retry else None,
            tags=tuple(body.tags or ()),
            limit_key=body.limit_key,
            fair_key=body.fair_key,
            score=body.score,
            webhook=webhook_of(body.webhook) if body.webhook else None,
        )
    except ValueError as error:
        raise refusals.invalid([refusals.field_error((), str(error))]) from None
