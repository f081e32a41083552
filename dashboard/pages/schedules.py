"""Schedules: due times and outcomes; create, change, pause, run and delete."""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Mapping
from dataclasses import asdict, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

from flask import Blueprint, abort, current_app, redirect, request, url_for

from firmq.dashboard import editing
from firmq.dashboard.auth.security import needs
from firmq.dashboard.auth.users import Role
from firmq.dashboard.context import changed, context, show
from firmq.dashboard.forms import Field, Mistakes, Path, blamed, fields_of, filled, options_of, read
from firmq.dashboard.present import pretty
from firmq.shared.domain.clock import instant
from firmq.shared.domain.schedule import Missed, Overlap, Schedule, following, task_now, upcoming
from firmq.shared.domain.schedule_body import ScheduleBody
from firmq.shared.domain.task import new_task_id
from firmq.shared.errors import ScheduleChanged
from firmq.shared.observability.tracing import current_traceparent
from firmq.shared.stores.queues import TOO_MANY_QUEUES, SubmitOutcome
from firmq.shared.stores.schedules import StoredSchedule
from firmq.shared.submission.bodies import read_body, schedule_from
from firmq.shared.submission.refusals import Refusal

if TYPE_CHECKING:
    from werkzeug.wrappers import Response

NEXT, PREVIEWED = 3, 5
MOST = 500
"""Types to choose from."""
NAME = Field(key="name", kind="string", label="Name", help="A-Z a-z 0-9 _ -", required=True)
OPTIONS = (
    Field(key="cron", label="Cron", help="minute hour day month weekday; six fields begin with seconds"),
    Field(
        key="interval", kind="number", label="Interval", help="seconds from one due time to the next, instead of cron"
    ),
    Field(key="timezone", label="Time zone", help="of cron, such as Europe/Berlin", default="UTC"),
    Field(key="queue", label="Queue", help="empty: the queue of the type"),
    Field(
        key="missed",
        widget="choice",
        choices=tuple(Missed),
        label="Missed due times",
        help="while no housekeeper ran: no task, one for all, or one each",
    ),
    Field(
        key="overlap",
        widget="choice",
        choices=tuple(Overlap),
        label="Overlap",
        help="when the last task has not ended: run both, skip the due time, or cancel the last task",
    ),
    Field(key="tags", kind="words", label="Tags", help="words, separated by spaces"),
    Field(
        key="options",
        kind="json",
        widget="json",
        label="Other options",
        help='as in PUT /schedules/NAME, such as {"timeout": 600}',
    ),
)
TAKEN = "a schedule of this name exists: choose another name, or change that one on its page"
CHANGED = "this schedule was changed meanwhile: compare below, then save again to replace that version"

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
        runs=context.queries.schedule_runs(tuple(each.schedule.name for each in found.items)),
        next_times=_next_times,
    )


@blueprint.get("/schedules/<name>")
def schedule(name: str) -> str:
    found = context.queries.schedule(name)
    runs = context.queries.schedule_runs((name,))[name]
    states = context.queries.states([*(each.task_id for each in runs), found.last_task])
    return show("schedule.html", stored=found, times=_next_times(found, 10), runs=runs, states=states)


@blueprint.get("/schedules/+new")
@needs(Role.ADMIN)
def new() -> str:
    task_type = request.args.get("type", "").strip()[:100]
    if not task_type:
        names = context.stores.type_cache.names()
        return show("schedule_form.html", type="", names=names[:MOST], left_out=max(0, len(names) - MOST))
    editing.demand_own(task_type)
    usual = {"missed": Missed.ONCE, "overlap": Overlap.ALLOW}
    return _form(task_type, [NAME, *fields_of(_schema(task_type), context.redaction), *options_of(OPTIONS, usual)])


@blueprint.post("/schedules/+create")
@needs(Role.ADMIN)
def create() -> Response | tuple[str, int]:
    task_type = request.form.get("type", "")[:100]
    editing.demand_own(task_type)
    made, mistakes = _read(task_type, None)
    fields = [NAME, *fields_of(_schema(task_type), context.redaction), *OPTIONS]
    if made is None or _is_preview():
        return _again(task_type, fields, mistakes)
    try:
        happened = context.stores.schedules.put(made, expected="")
    except ScheduleChanged:
        return _again(task_type, fields, [(("name",), TAKEN)], status=409)
    if happened == "unchanged":  # the form was sent twice
        return redirect(url_for(".schedule", name=made.name))
    return _changed("created schedule", made.name, "Created.", made.when)


@blueprint.get("/schedules/<name>/edit")
@needs(Role.ADMIN)
def edit(name: str) -> str:
    stored = context.stores.schedules.get(name)
    task_type = request.args.get("type", "").strip()[:100] or stored.schedule.type
    editing.demand_own(task_type)
    known = [context.redaction.hide(json.loads(stored.schedule.data))] if task_type == stored.schedule.type else []
    options = options_of(OPTIONS, _options(stored.schedule))
    return _form(task_type, [*fields_of(_schema(task_type), context.redaction, *known), *options], stored)


@blueprint.post("/schedules/<name>/edit")
@needs(Role.ADMIN)
def change(name: str) -> Response | tuple[str, int]:
    stored = context.stores.schedules.get(name)
    task_type = request.form.get("type", "")[:100] or stored.schedule.type
    editing.demand_own(task_type)
    fields = [*fields_of(_schema(task_type), context.redaction), *OPTIONS]
    made, mistakes = _read(task_type, stored)
    if made == stored.schedule and not _is_preview():  # nothing to change, or the form was sent twice
        return redirect(url_for(".schedule", name=name))
    if not hmac.compare_digest(request.form.get("version", ""), _version(stored)):
        return _again(task_type, fields, [*mistakes, ((), CHANGED)], stored, 409)
    if made is None or _is_preview():
        return _again(task_type, fields, mistakes, stored)
    try:
        context.stores.schedules.put(made, stored.source, stored.schedule.revision)
    except ScheduleChanged:
        return _again(task_type, fields, [((), CHANGED)], context.stores.schedules.get(name), 409)
    return _changed("changed schedule", name, "Changed.")


@blueprint.get("/schedules/+times")
def times() -> str:
    """Answers with the next due times by the fields, for the preview of an open form."""
    _, options, _ = read(request.args, context.settings.max_json_depth)
    return show("schedule_times.html", times=_previewed(options))


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
    task = task_now(schedule, new_task_id(context.stores.task_factory.mark))
    [stored] = context.stores.queues.submit([task.with_trace(current_traceparent())], stays=True)
    if stored.outcome is SubmitOutcome.TOO_MANY_QUEUES:
        abort(400, TOO_MANY_QUEUES.format(queue=task.queue))
    if stored.state is None:
        abort(400, f"the queue {task.queue} is full: try again later")
    to = url_for("task.task", task_id=task.id)
    return changed("ran schedule now", name, task.id, to=to, message="This task was created from the schedule.")


@blueprint.post("/schedules/<name>/delete")
@needs(Role.ADMIN)
def delete(name: str) -> Response:
    context.stores.schedules.delete(name)
    message = f"Schedule {name} is deleted; its tasks are kept."
    return changed("deleted schedule", name, to=url_for(".schedules"), message=message)


def _changed(what: str, name: str, message: str, detail: str = "") -> Response:
    return changed(what, name, detail, to=url_for(".schedule", name=name), message=message)


def _next_times(stored: StoredSchedule, count: int = NEXT) -> list[datetime]:
    return upcoming(stored.schedule, stored.due, count) if stored.due else []


# --- The form ----------------------------------------------------------------------------------------------------


def _form(task_type: str, fields: list[Field], stored: StoredSchedule | None = None, mistakes: Mistakes = ()) -> str:
    """Shows the form; with `mistakes` of a lost race, also the stored version beside the entered one."""
    fields, others = blamed(fields, mistakes)
    return show(
        "schedule_form.html",
        type=task_type,
        stored=stored,
        fields=fields,
        others=others,
        version=_version(stored) if stored else "",
        theirs=pretty(_shown(stored.schedule)) if stored and CHANGED in others else "",
        times=_previewed(read({each.name: each.text for each in fields}, context.settings.max_json_depth)[1]),
    )


def _again(
    task_type: str, fields: list[Field], mistakes: Mistakes, stored: StoredSchedule | None = None, status: int = 400
) -> tuple[str, int]:
    """Shows the form with the entered values, for a preview or with the mistakes."""
    given = filled(fields, request.form, context.redaction)
    return _form(task_type, given, stored, mistakes), status if mistakes else 200


def _is_preview() -> bool:
    return request.form.get("do") == "preview"


def _read(task_type: str, stored: StoredSchedule | None) -> tuple[Schedule | None, list[tuple[Path, str]]]:
    """Returns the schedule of a form, or its mistakes."""
    data, options, mistakes = read(request.form, context.settings.max_json_depth)
    before = stored.schedule if stored else None
    name = before.name if before else options.pop("name", "")
    try:
        data = context.redaction.restore(data, json.loads(before.data) if before else None)
    except ValueError as error:
        mistakes.append((("data",), str(error)))
    value = {**options, "type": task_type, "data": data}
    is_same_type = before is not None and before.type == task_type
    if not mistakes:
        mistakes = editing.mistakes_in(task_type, data, demand_type=not is_same_type)
    stores = context.stores
    try:
        body = read_body(ScheduleBody, value, stores.task_factory.context)
        stores.type_cache.check_queue(task_type, body.queue)
        made = schedule_from(name, body, stores.task_factory.queue_of(task_type))
    except Refusal as refusal:
        return None, [*mistakes, *(_of_option(each) for each in editing.mistakes_of(refusal, data))]
    if before and json.loads(before.data) == data:
        made = replace(made, data=before.data)
    return (None if mistakes else made), mistakes


def _of_option(mistake: tuple[Path, str]) -> tuple[Path, str]:
    """Returns the mistake of a whole schedule at the field that can cure it."""
    path, text = mistake
    if path:
        return mistake
    if "is not a schedule name" in text:
        return ("name",), text
    return (("cron",), text) if "cron or interval" in text else mistake


def _previewed(options: Mapping[str, Any]) -> list[datetime] | str:
    """Returns the next due times of cron, interval and time zone; or the mistakes in them."""
    when = {name: options[name] for name in ("cron", "interval", "timezone") if options.get(name) is not None}
    try:
        made = read_body(ScheduleBody, {**when, "type": "t"}, context.stores.task_factory.context)
        schedule = schedule_from("preview", made, "q")
    except Refusal as refusal:
        return refusal.detail
    now = instant(context.stores.tasks.scripts.now_us()).replace(microsecond=0)
    due = following(schedule, now)
    return upcoming(schedule, due, PREVIEWED) if due else []


def _schema(task_type: str) -> Any:
    found = context.stores.type_cache.get(task_type)
    return found.schema if found else {}


def _options(schedule: Schedule) -> dict[str, Any]:
    """Returns the options of a schedule without those that have their defaults."""
    fields = {name: value for name, value in asdict(schedule).items() if name not in ("name", "type", "data")}
    if schedule.webhook:
        fields["webhook"] = {name: value for name, value in fields["webhook"].items() if value}
    if schedule.missed_limit == 100:
        del fields["missed_limit"]
    return fields


def _shown(schedule: Schedule) -> dict[str, Any]:
    """Returns a schedule as JSON, with placeholders for hidden values."""
    kept = {name: value for name, value in _options(schedule).items() if value not in (None, (), {})}
    return {"type": schedule.type, **kept, "data": context.redaction.hide(json.loads(schedule.data))}


def _version(stored: StoredSchedule) -> str:
    """Returns a digest of a stored schedule, from which its hidden values cannot be guessed."""
    secret = str(current_app.secret_key).encode()
    return hmac.new(secret, stored.schedule.revision.encode(), hashlib.sha256).hexdigest()[:32]
