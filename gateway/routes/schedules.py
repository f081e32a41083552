"""Schedules: tasks that are made again and again, at times of a cron expression or at an interval."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Any, Literal

from flask import g
from pydantic import AfterValidator, Field, model_validator

from gateway import present, schemas
from gateway.http import errors
from gateway.http.endpoints import Answer, AuditAction, Reply, endpoint
from gateway.http.errors import Refusal
from gateway.metrics import Metrics
from gateway.schemas.values import Body, Tag, View
from gateway.tasks.task_factory import webhook_of
from gateway.tasks.type_cache import TypeCache
from shared.domain import strict_json
from shared.domain.schedule import (
    NOT_TO_BE_SCHEDULED,
    Missed,
    Overlap,
    Schedule,
    check_cron,
    check_zone,
    task_now,
    upcoming,
)
from shared.domain.task import WEBHOOK_TYPE, new_task_id
from shared.domain.task_fields import MOST_TAGS_OF_A_SCHEDULE, ExpiresIn, Timeout
from shared.observability.tracing import Tracing, subject_of
from shared.stores.api_keys import Scope
from shared.stores.queues import Queues
from shared.stores.schedules import ScheduleStore, StoredSchedule

SHOWN = 5
"""Due times that a schedule is shown with."""


def _cron(value: str) -> str:
    check_cron(value)
    return value


def _time_zone(value: str) -> str:
    check_zone(value)
    return value


class ScheduleBody(Body):
    """What is to run, and when: `cron` or `interval`."""

    type: str = Field(description="A registered task type; GET /types lists them.", max_length=100)
    data: Any = Field(None, description="Any JSON that fits the schema of the type.")
    priority: schemas.Priority | None = Field(None, description="A priority of GET /queues; none: the default one.")
    cron: Annotated[str, AfterValidator(_cron)] | None = Field(
        None, description="Minute, hour, day, month, weekday; with seconds in front if there are six.", max_length=200
    )
    interval: Annotated[int, Field(strict=True, ge=1, le=31_622_400)] | None = Field(
        None, description="Seconds from one run to the next."
    )
    timezone: Annotated[str, AfterValidator(_time_zone)] = Field(
        "UTC", description="Whose clocks `cron` means, such as Europe/Berlin; UTC by default.", max_length=64
    )
    missed: Literal["skip", "once", "all"] = Field(
        "once", description="What becomes of times that passed because no housekeeper ran; `once` by default."
    )
    missed_limit: Annotated[int, Field(strict=True, ge=1, le=10_000)] = Field(
        100, description="With missed: all, how many are made up for, the latest; 100 by default."
    )
    overlap: Literal["allow", "skip", "cancel"] = Field(
        "allow",
        description="When the last task has not ended: run beside it (`allow`, the default), skip this time, or cancel "
        "that one.",
    )
    timeout: Timeout | None = Field(None, description="Seconds that one attempt may take.")
    expires_in: ExpiresIn | None = Field(None, description="Seconds after which a task must not start any more.")
    retry: schemas.RetryOverrides | None = Field(None, description="What differs from the retry policy of the type.")
    tags: Annotated[list[Tag], Field(max_length=MOST_TAGS_OF_A_SCHEDULE)] | None = Field(
        None, description="Words to find its tasks by; schedule:NAME comes along."
    )
    limit_key: schemas.LimitKey | None = Field(
        None, description="Puts its tasks under the limit of this key beside that of their type."
    )
    fair_key: schemas.Key | None = Field(None, description="Whose tasks they are, where tenants take turns.")
    webhook: schemas.WebhookBody | None = Field(None, description="Whom to tell when one of its tasks has ended.")

    @model_validator(mode="after")
    def _one_of_two(self) -> ScheduleBody:
        if (self.cron is None) == (self.interval is None):
            raise ValueError("must have either cron or interval")
        return self


class ScheduleView(View):
    """A schedule and how it fares."""

    name: str
    type: str
    data: Any
    priority: str
    cron: str | None
    interval: int | None
    timezone: str
    missed: Missed
    missed_limit: int
    overlap: Overlap
    timeout: float | None
    expires_in: float | None
    retry: dict[str, float | list[float]]
    tags: list[str]
    limit_key: str | None
    fair_key: str | None
    webhook: schemas.WebhookView | None
    source: str = Field(description="`file` for one that the configuration file declares, else `api`.")
    paused: bool
    paused_reason: str | None
    next_at: datetime | None = Field(description="Null while it is paused.")
    next_times: list[datetime] = Field(description="The next five.")
    last_due_at: datetime | None = Field(description="The latest due time that became a task.")
    last_task_id: str | None
    tasks: int = Field(description="Due times that became tasks.")
    missed_times: int = Field(description="Due times that passed without a task.")
    overlaps: int = Field(description="Due times skipped because the last task had not ended.")


class ScheduleList(View):
    """Schedules by name."""

    items: list[ScheduleView]
    unreadable: list[str] = Field(description="Names of those on this page that cannot be read: set them again.")
    next_cursor: schemas.NextCursor = None


class ScheduleRemoved(View):
    """A schedule that is gone."""

    name: str
    removed: Literal[True]


class ScheduleRoutes:
    """Each due time becomes one task, whose id is made from the name and the time."""

    def __init__(
        self,
        schedule_store: ScheduleStore,
        queues: Queues,
        type_cache: TypeCache,
        metrics: Metrics,
        tracing: Tracing,
        default_priority: str,
    ) -> None:
        self.schedule_store = schedule_store
        self.tracing = tracing
        self.queues = queues
        self.type_cache = type_cache
        self.metrics = metrics
        self.default_priority = default_priority

    @endpoint(
        "GET",
        "/schedules",
        tag="schedules",
        query=schemas.PageQuery,
        answers={200: Answer(description="A page of schedules.", model=ScheduleList)},
    )
    def page(self, query: schemas.PageQuery) -> Reply:
        """Lists the schedules by name, each with its next five times."""
        page = self.schedule_store.page(query.limit, query.cursor or "")
        items = [_view(each) for each in page.items]
        return Reply(content=ScheduleList(items=items, unreadable=list(page.unreadable), next_cursor=page.after))

    @endpoint(
        "GET",
        "/schedules/{name}",
        tag="schedules",
        answers={200: Answer(description="The schedule.", model=ScheduleView)},
        problems=(errors.NOT_FOUND, errors.CORRUPT),
    )
    def get(self, name: str) -> Reply:
        """Shows one schedule."""
        return Reply(content=_view(self.schedule_store.get(name)))

    @endpoint(
        "PUT",
        "/schedules/{name}",
        tag="schedules",
        scope=Scope.ADMIN,
        act=AuditAction("changed schedule", "{name}"),
        body=ScheduleBody,
        answers={
            200: Answer(description="It was there; it is as the body says now.", model=ScheduleView),
            201: Answer(description="It is new.", model=ScheduleView),
        },
        problems=(errors.CORRUPT, errors.UNKNOWN_TYPE, errors.NO_TYPES),
    )
    def put(self, name: str, body: ScheduleBody) -> Reply:
        """Creates or changes a schedule. The same again changes nothing, not even its next time."""
        self.type_cache.check(body.type, body.data)
        happened = self.schedule_store.put(_schedule(name, body, self.default_priority))
        return Reply(content=_view(self.schedule_store.get(name)), status=201 if happened == "created" else 200)

    @endpoint(
        "DELETE",
        "/schedules/{name}",
        tag="schedules",
        scope=Scope.ADMIN,
        act=AuditAction("deleted schedule", "{name}"),
        answers={200: Answer(description="The schedule is gone; its tasks stay.", model=ScheduleRemoved)},
        problems=(errors.NOT_FOUND,),
    )
    def delete(self, name: str) -> Reply:
        """Removes a schedule. One that the configuration file declares comes back with the next housekeeper."""
        self.schedule_store.delete(name)
        return Reply(content=ScheduleRemoved(name=name, removed=True))

    @endpoint(
        "POST",
        "/schedules/{name}/pause",
        tag="schedules",
        scope=Scope.OPERATE,
        act=AuditAction("paused schedule", "{name}"),
        body=schemas.PauseBody,
        answers={200: Answer(description="The schedule is paused.", model=ScheduleView)},
        problems=(errors.NOT_FOUND, errors.CORRUPT),
    )
    def pause(self, name: str, body: schemas.PauseBody) -> Reply:
        """Pauses a schedule. Times that pass meanwhile are not made up for."""
        stored = self.schedule_store.pause(name, body.reason)
        return Reply(content=_view(stored))

    @endpoint(
        "POST",
        "/schedules/{name}/resume",
        tag="schedules",
        scope=Scope.OPERATE,
        act=AuditAction("resumed schedule", "{name}"),
        answers={200: Answer(description="The schedule goes on.", model=ScheduleView)},
        problems=(errors.NOT_FOUND, errors.CORRUPT),
    )
    def resume(self, name: str) -> Reply:
        """Lets a schedule go on, with its next time from now."""
        stored = self.schedule_store.resume(name)
        return Reply(content=_view(stored))

    @endpoint(
        "POST",
        "/schedules/{name}/run",
        tag="schedules",
        scope=Scope.OPERATE,
        act=AuditAction("ran schedule now", "{name}"),
        answers={202: Answer(description="The task is kept.", model=schemas.TaskStatus)},
        problems=(errors.NOT_FOUND, errors.CORRUPT, errors.UNKNOWN_TYPE, errors.QUEUE_FULL),
    )
    def run(self, name: str) -> Reply:
        """Runs it now, beside its due times, also while it is paused."""
        schedule = self.schedule_store.get(name).schedule
        if schedule.type == WEBHOOK_TYPE:
            raise Refusal(errors.UNKNOWN_TYPE, NOT_TO_BE_SCHEDULED)
        task = task_now(schedule, new_task_id())
        with self.tracing.sending(subject_of(task), g.trace_parent) as travelling:
            [stored] = self.queues.submit([task.with_trace(travelling)])
        if stored.state is None:
            wait = {"Retry-After": str(errors.RETRY_AFTER)}
            raise Refusal(errors.QUEUE_FULL, f"queue {task.queue} is full: try again later", headers=wait)
        self.metrics.submitted(task.queue, task.type)
        answer = {"task_id": task.id, "status": stored.state}
        return Reply(content=answer, status=202, headers={"Location": f"/tasks/{task.id}"}, noted=task.id)


def _schedule(name: str, body: ScheduleBody, default_priority: str) -> Schedule:
    try:
        return Schedule(
            name=name,
            type=body.type,
            data=strict_json.dump(body.data),
            queue=body.priority or default_priority,
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
            webhook=webhook_of(body.webhook) if body.webhook else None,
        )
    except ValueError as error:
        raise errors.invalid([errors.field_error((), str(error))]) from None


def _view(stored: StoredSchedule) -> ScheduleView:
    schedule = stored.schedule
    return ScheduleView(
        name=schedule.name,
        type=schedule.type,
        data=json.loads(schedule.data),
        priority=schedule.queue,
        cron=schedule.cron,
        interval=schedule.interval,
        timezone=schedule.timezone,
        missed=schedule.missed,
        missed_limit=schedule.missed_limit,
        overlap=schedule.overlap,
        timeout=schedule.timeout,
        expires_in=schedule.expires_in,
        retry={
            name: list(value) if isinstance(value, Sequence) else value
            for name, value in (schedule.retry or {}).items()
        },
        tags=list(schedule.tags),
        limit_key=schedule.limit_key,
        fair_key=schedule.fair_key,
        webhook=present.webhook(schedule.webhook),
        source=stored.source,
        paused=stored.paused is not None,
        paused_reason=stored.paused.get("reason") if stored.paused else None,
        next_at=stored.due,
        next_times=upcoming(schedule, stored.due, SHOWN) if stored.due else [],
        last_due_at=stored.last_due,
        last_task_id=stored.last_task,
        tasks=stored.fired,
        missed_times=stored.missed,
        overlaps=stored.overlaps,
    )
