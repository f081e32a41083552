"""Endpoints for schedules, which create tasks at the times of a cron expression or at an interval."""

from __future__ import annotations

import json
from dataclasses import fields
from datetime import datetime
from typing import Literal

from flask import g
from pydantic import Field

from firmq.gateway import schemas
from firmq.gateway.auth.visible import demand_no_placeholder, visible
from firmq.gateway.http.across import Across
from firmq.gateway.http.endpoints import Answer, AuditAction, Reply, endpoint
from firmq.gateway.metrics import Metrics
from firmq.gateway.routes.tasks import note_positions
from firmq.gateway.schemas.values import View
from firmq.shared.domain.queue_selection import DEFAULT
from firmq.shared.domain.schedule import NOT_TO_BE_SCHEDULED, task_now, upcoming
from firmq.shared.domain.schedule_body import ScheduleBody
from firmq.shared.domain.task import WEBHOOK_TYPE, new_task_id
from firmq.shared.observability.tracing import Tracing
from firmq.shared.stores.api_keys import Scope
from firmq.shared.stores.queues import Queues
from firmq.shared.stores.schedules import ScheduleStore, StoredSchedule
from firmq.shared.stores.tasks import encode_cursor
from firmq.shared.submission import answers, reading, refusals
from firmq.shared.submission.bodies import schedule_from
from firmq.shared.submission.refusals import Refusal
from firmq.shared.submission.task_factory import refusal_of
from firmq.shared.submission.type_cache import TypeCache

SHOWN = 5
"""Number of upcoming due times shown with a schedule."""


class ScheduleList(View):
    """Schedules by name."""

    items: list[answers.Schedule]
    unreadable: list[str] = Field(description="Names of schedules on this page that cannot be read: PUT them again.")
    next_cursor: schemas.NextCursor = None


class RunView(View):
    """A run of a schedule."""

    task_id: str
    due_at: datetime
    status: str = Field(
        description="State of its task, as seen some seconds ago; `removed` if it was deleted before its end was seen."
    )


class RunList(View):
    """The last runs of a schedule, the latest first."""

    items: list[RunView]


class ScheduleRemoved(View):
    """A deleted schedule."""

    name: str
    removed: Literal[True]


class ScheduleRoutes:
    """Each due time creates one task, whose id is derived from the name and the time."""

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
        Across.PAGES_BY_NAME,
        tag="schedules",
        query=schemas.PageQuery,
        answers={200: Answer(description="A page of schedules.", model=ScheduleList)},
    )
    def page(self, query: schemas.PageQuery) -> Reply:
        """Lists schedules by name, each with its next five due times."""
        page = self.schedule_store.page(query.limit, query.cursor or "")
        items = [_view(each) for each in page.items]
        note_positions(encode_cursor(each.name.encode()) for each in items)
        return Reply(content=ScheduleList(items=items, unreadable=list(page.unreadable), next_cursor=page.after))

    @endpoint(
        "GET",
        "/schedules/{name}",
        Across.SCHEDULE,
        tag="schedules",
        answers={200: Answer(description="The schedule.", model=answers.Schedule)},
        problems=(refusals.NOT_FOUND, refusals.CORRUPT),
    )
    def get(self, name: str) -> Reply:
        """Shows one schedule."""
        return Reply(content=_view(self.schedule_store.get(name)))

    @endpoint(
        "GET",
        "/schedules/{name}/runs",
        Across.SCHEDULE,
        tag="schedules",
        answers={200: Answer(description="Its last runs.", model=RunList)},
        problems=(refusals.NOT_FOUND, refusals.CORRUPT),
    )
    def runs(self, name: str) -> Reply:
        """Lists the last 30 runs of a schedule. A retried run is one run, with its present state."""
        self.schedule_store.get(name)
        [runs] = self.schedule_store.runs([name])
        items = [RunView(task_id=each.task_id, due_at=each.due, status=each.state) for each in reversed(runs)]
        return Reply(content=RunList(items=items))

    @endpoint(
        "PUT",
        "/schedules/{name}",
        Across.SCHEDULE,
        tag="schedules",
        scope=Scope.ADMIN,
        act=AuditAction("changed schedule", "{name}"),
        body=ScheduleBody,
        answers={
            200: Answer(description="The existing schedule is replaced.", model=answers.Schedule),
            201: Answer(description="The schedule is created.", model=answers.Schedule),
        },
        problems=(refusals.CORRUPT, refusals.UNKNOWN_TYPE, refusals.NO_TYPES),
    )
    def put(self, name: str, body: ScheduleBody) -> Reply:
        """Creates or replaces a schedule. An identical request changes nothing, not even the next due time."""
        demand_no_placeholder(body.data)
        self.type_cache.check(body.type, body.data)
        self.type_cache.check_queue(body.type, body.queue)
        own = self.type_cache.queue_of(body.type) or DEFAULT
        default_queue = self.default_priority if own == DEFAULT else own
        happened = self.schedule_store.put(schedule_from(name, body, default_queue))
        return Reply(content=_view(self.schedule_store.get(name)), status=201 if happened == "created" else 200)

    @endpoint(
        "DELETE",
        "/schedules/{name}",
        Across.SCHEDULE,
        tag="schedules",
        scope=Scope.ADMIN,
        act=AuditAction("deleted schedule", "{name}"),
        answers={200: Answer(description="The schedule is deleted; its tasks stay.", model=ScheduleRemoved)},
        problems=(refusals.NOT_FOUND,),
    )
    def delete(self, name: str) -> Reply:
        """Deletes a schedule. One declared in the configuration file is created again by the next housekeeper."""
        self.schedule_store.delete(name)
        return Reply(content=ScheduleRemoved(name=name, removed=True))

    @endpoint(
        "POST",
        "/schedules/{name}/pause",
        Across.SCHEDULE,
        tag="schedules",
        scope=Scope.OPERATE,
        act=AuditAction("paused schedule", "{name}"),
        body=schemas.ReasonBody,
        answers={200: Answer(description="The schedule is paused.", model=answers.Schedule)},
        problems=(refusals.NOT_FOUND, refusals.CORRUPT),
    )
    def pause(self, name: str, body: schemas.ReasonBody) -> Reply:
        """Pauses a schedule. Due times during the pause are skipped."""
        stored = self.schedule_store.pause(name, body.reason)
        return Reply(content=_view(stored))

    @endpoint(
        "POST",
        "/schedules/{name}/resume",
        Across.SCHEDULE,
        tag="schedules",
        scope=Scope.OPERATE,
        act=AuditAction("resumed schedule", "{name}"),
        answers={200: Answer(description="The schedule is not paused.", model=answers.Schedule)},
        problems=(refusals.NOT_FOUND, refusals.CORRUPT),
    )
    def resume(self, name: str) -> Reply:
        """Resumes a schedule with its next due time from now."""
        stored = self.schedule_store.resume(name)
        return Reply(content=_view(stored))

    @endpoint(
        "POST",
        "/schedules/{name}/run",
        Across.SCHEDULE,
        tag="schedules",
        scope=Scope.OPERATE,
        act=AuditAction("ran schedule now", "{name}"),
        answers={202: Answer(description="The task is accepted and stored.", model=answers.Status)},
        problems=(
            refusals.NOT_FOUND,
            refusals.CORRUPT,
            refusals.UNKNOWN_TYPE,
            refusals.QUEUE_FULL,
            refusals.TOO_MANY_QUEUES,
        ),
    )
    def run(self, name: str) -> Reply:
        """Creates a task now, in addition to due times. Works while the schedule is paused."""
        schedule = self.schedule_store.get(name).schedule
        if schedule.type == WEBHOOK_TYPE:
            raise Refusal(refusals.UNKNOWN_TYPE, NOT_TO_BE_SCHEDULED)
        task = task_now(schedule, new_task_id(self.schedule_store.scripts.mark))
        with self.tracing.sending(task.subject, g.trace_parent) as travelling:
            [stored] = self.queues.submit([task.with_trace(travelling)], stays=True)
        if refusal := refusal_of(task, stored):
            raise refusal
        self.metrics.submitted(task.queue, task.type)
        answer = {"task_id": task.id, "status": stored.state}
        return Reply(content=answer, status=202, headers={"Location": f"/tasks/{task.id}"}, noted=task.id)


def _view(stored: StoredSchedule) -> answers.Schedule:
    schedule = stored.schedule
    shown = {each.name: getattr(schedule, each.name) for each in fields(schedule)} | {
        "data": visible(json.loads(schedule.data)),
        "retry": schedule.retry or {},
        "webhook": reading.webhook(schedule.webhook),
    }
    return answers.Schedule(
        **shown,
        source=stored.source,
        paused=stored.paused is not None,
        paused_reason=stored.paused.get("reason") if stored.paused else None,
        next_at=stored.due,
        next_times=tuple(upcoming(schedule, stored.due, SHOWN)) if stored.due else (),
        last_due_at=stored.last_due,
        last_task_id=stored.last_task,
        tasks=stored.fired,
        missed_times=stored.missed,
        overlaps=stored.overlaps,
    )
