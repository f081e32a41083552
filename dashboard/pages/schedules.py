"""Schedules: due times and outcomes; pause, run, change and delete."""

from __future__ import annotations

import json
from dataclasses import asdict
from datetime import datetime
from typing import TYPE_CHECKING, Any

from flask import Blueprint, flash, redirect, render_template, request, url_for

from dashboard.actions import Refused
from dashboard.auth.security import needs, person
from dashboard.auth.users import Role
from dashboard.present import Redaction, pretty
from shared.domain.schedule import Missed, Overlap, Schedule, upcoming

if TYPE_CHECKING:
    from werkzeug.wrappers import Response

    from dashboard.app import PageContext
    from shared.stores.schedules import StoredSchedule

NEXT = 3


def page(context: PageContext) -> Blueprint:
    """`/schedules`"""
    blueprint = Blueprint("schedules", __name__)

    @blueprint.get("/schedules")
    def schedules() -> str:
        found = context.queries.schedules(request.args.get("after", "")[:100])
        states = context.queries.states(each.last_task for each in found.items)
        return render_template(
            "schedules.html",
            now=context.queries.look(),
            schedules=found.items,
            unreadable=found.unreadable,
            after=found.after,
            states=states,
            next_times=_next_times,
        )

    @blueprint.get("/schedules/<name>")
    def schedule(name: str) -> str:
        return _show(context, name)

    _add_changes(blueprint, context)
    _add_editing(blueprint, context)
    return blueprint


def _add_changes(blueprint: Blueprint, context: PageContext) -> None:
    @blueprint.post("/schedules/<name>/pause")
    @needs(Role.OPERATOR)
    def pause(name: str) -> Response:
        context.actions.pause_schedule(person(), name, request.form.get("reason", "").strip()[:500])
        return _back(name, "Paused. Due times that pass meanwhile are skipped.")

    @blueprint.post("/schedules/<name>/resume")
    @needs(Role.OPERATOR)
    def resume(name: str) -> Response:
        context.actions.resume_schedule(person(), name)
        return _back(name, "Resumed. Its next due time is counted from now.")

    @blueprint.post("/schedules/<name>/run")
    @needs(Role.OPERATOR)
    def run(name: str) -> Response:
        task_id = context.actions.run_schedule(person(), name)
        flash("This task was created from the schedule.")
        return redirect(url_for("task.task", task_id=task_id))


def _add_editing(blueprint: Blueprint, context: PageContext) -> None:
    @blueprint.post("/schedules/<name>/edit")
    @needs(Role.ADMIN)
    def edit(name: str) -> Response | tuple[str, int]:
        text = request.form.get("schedule", "")
        try:
            context.actions.change_schedule(person(), name, text)
        except Refused as error:
            return _show(context, name, text, str(error)), 400
        return _back(name, "Changed.")

    @blueprint.post("/schedules/<name>/delete")
    @needs(Role.ADMIN)
    def delete(name: str) -> Response:
        context.actions.delete_schedule(person(), name)
        flash(f"Schedule {name} is deleted; its tasks are kept.")
        return redirect(url_for("schedules.schedules"))


def _show(context: PageContext, name: str, edited: str | None = None, problem: str | None = None) -> str:
    found = context.queries.schedule(name)
    return render_template(
        "schedule.html",
        now=context.queries.look(),
        stored=found,
        times=_next_times(found, 10),
        state=context.queries.states([found.last_task]).get(found.last_task or ""),
        edited=edited if edited is not None else pretty(_declared(found.schedule, context.redaction)),
        problem=problem,
    )


def _back(name: str, message: str) -> Response:
    flash(message)
    return redirect(url_for("schedules.schedule", name=name))


def _next_times(stored: StoredSchedule, count: int = NEXT) -> list[datetime]:
    return upcoming(stored.schedule, stored.due, count) if stored.due else []


def _declared(schedule: Schedule, redaction: Redaction) -> dict[str, Any]:
    """Returns a schedule as JSON without the fields that have their defaults."""
    usual = {"timezone": "UTC", "missed": Missed.ONCE, "missed_limit": 100, "overlap": Overlap.ALLOW, "tags": ()}
    fields = {name: value for name, value in asdict(schedule).items() if value is not None and value != usual.get(name)}
    del fields["name"]
    fields["priority"] = fields.pop("queue")
    return {**fields, "data": redaction.hide(json.loads(schedule.data))}
