"""Schedules: due times and outcomes; pause, run, change and delete."""

from __future__ import annotations

import json
from dataclasses import asdict
from datetime import datetime
from typing import TYPE_CHECKING, Any

from flask import Blueprint, abort, request, url_for
from werkzeug.exceptions import BadRequest

from taskqueue.dashboard import editing
from taskqueue.dashboard.auth.security import needs
from taskqueue.dashboard.auth.users import Role
from taskqueue.dashboard.context import changed, context, show
from taskqueue.dashboard.present import Redaction, pretty
from taskqueue.shared.domain.schedule import Missed, Overlap, Schedule, read_declared, task_now, upcoming
from taskqueue.shared.domain.task import new_task_id
from taskqueue.shared.observability.tracing import current_traceparent
from taskqueue.shared.stores.queues import TOO_MANY_QUEUES
from taskqueue.shared.stores.schedules import StoredSchedule

if TYPE_CHECKING:
    from werkzeug.wrappers import Response

NEXT = 3

blueprint = Blueprint("schedules", __name__)


@blueprint.get("/schedules")
def schedules() -> str:
    found = context.queries.schedules(request.args.get("after", "")[:100])
    return show(
        "schedules.html",
        schedules=found.items,
        unreadable=found.unreadable,
        after=found.after,
        states=context.queries.states([each.last_task for each in found.items]),
        next_times=_next_times,
    )


@blueprint.get("/schedules/<name>")
def schedule(name: str) -> str:
    return _show(name)


@blueprint.post("/schedules/<name>/pause")
@needs(Role.OPERATOR)
def pause(name: str) -> Response:
    reason = request.form.get("reason", "").strip()[:500]
    context.stores.schedules.pause(name, reason)
    return _changed("paused schedule", name, "Paused. Due times that pass meanwhile are skipped.", reason)


@blueprint.post("/schedules/<name>/resume")
@needs(Role.OPERATOR)
def resume(name: str) -> Response:
    context.stores.schedules.resume(name)
    return _changed("resumed schedule", name, "Resumed. Its next due time is counted from now.")


@blueprint.post("/schedules/<name>/run")
@needs(Role.OPERATOR)
def run(name: str) -> Response:
    schedule = context.stores.schedules.get(name).schedule
    editing.demand_own(schedule.type)
    task = task_now(schedule, new_task_id())
    [stored] = context.stores.queues.submit([task.with_trace(current_traceparent())])
    if stored.state is None:
        full = f"the queue {task.queue} is full: try again later"
        abort(400, TOO_MANY_QUEUES.format(queue=task.queue) if stored.too_many_queues else full)
    to = url_for("task.task", task_id=task.id)
    return changed("ran schedule now", name, task.id, to=to, message="This task was created from the schedule.")


@blueprint.post("/schedules/<name>/edit")
@needs(Role.ADMIN)
def edit(name: str) -> Response | tuple[str, int]:
    text, stored = request.form.get("schedule", ""), context.stores.schedules.get(name)
    try:
        schedule = _edited(stored, text)
    except BadRequest as error:
        return _show(name, text, error.description), 400
    context.stores.schedules.put(schedule, stored.source)
    return _changed("changed schedule", name, "Changed.")


@blueprint.post("/schedules/<name>/delete")
@needs(Role.ADMIN)
def delete(name: str) -> Response:
    context.stores.schedules.delete(name)
    message = f"Schedule {name} is deleted; its tasks are kept."
    return changed("deleted schedule", name, to=url_for(".schedules"), message=message)


def _show(name: str, edited: str | None = None, problem: str | None = None) -> str:
    found = context.queries.schedule(name)
    return show(
        "schedule.html",
        stored=found,
        times=_next_times(found, 10),
        state=context.queries.states([found.last_task]).get(found.last_task or ""),
        edited=edited if edited is not None else pretty(_declared(found.schedule, context.redaction)),
        problem=problem,
    )


def _changed(what: str, name: str, message: str, detail: str = "") -> Response:
    return changed(what, name, detail, to=url_for(".schedule", name=name), message=message)


def _edited(stored: StoredSchedule, text: str) -> Schedule:
    """Returns the schedule with the changes of a person. Ends the request with 400 if it is invalid."""
    before, entry = stored.schedule, editing.parse(text)
    if isinstance(entry, dict):
        entry["data"] = editing.restore(entry.get("data"), json.loads(before.data))
    settings = context.settings
    try:
        schedule = read_declared(before.name, entry, settings.queues, before.queue, settings.egress_policy())
    except ValueError as error:
        abort(400, str(error))
    editing.demand_valid(schedule.type, json.loads(schedule.data))
    return schedule


def _next_times(stored: StoredSchedule, count: int = NEXT) -> list[datetime]:
    return upcoming(stored.schedule, stored.due, count) if stored.due else []


def _declared(schedule: Schedule, redaction: Redaction) -> dict[str, Any]:
    """Returns a schedule as JSON without the fields that have their defaults."""
    usual = {"timezone": "UTC", "missed": Missed.ONCE, "missed_limit": 100, "overlap": Overlap.ALLOW, "tags": ()}
    fields = {name: value for name, value in asdict(schedule).items() if value is not None and value != usual.get(name)}
    del fields["name"]
    return {**fields, "data": redaction.hide(json.loads(schedule.data))}
