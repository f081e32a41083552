"""One task: its whole record, and the actions on it."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

from flask import Blueprint, Response, flash, redirect, render_template, request, url_for

from dashboard.actions import Refused, as_command
from dashboard.auth.security import needs, person
from dashboard.auth.users import Role
from dashboard.explain.graph import draw
from dashboard.explain.status import RelatedTasks, explain
from dashboard.explain.timeline import timeline
from dashboard.present import pretty
from shared.domain.task import TaskDetail, TaskState
from shared.errors import BatchNotFound
from shared.stores.dependencies import Relations

if TYPE_CHECKING:
    from werkzeug.wrappers import Response as AnyResponse

    from dashboard.app import PageContext

LONGEST = 32_768
"""Characters of data or of a result that the page shows; the whole value can be downloaded."""


def page(context: PageContext) -> Blueprint:
    """`/tasks/ID`"""
    blueprint = Blueprint("task", __name__)

    @blueprint.get("/tasks/<task_id>")
    def task(task_id: str) -> str:
        with context.queries.turn(task_id):
            return _show(context, task_id)

    @blueprint.get("/tasks/<task_id>/<any(data, result):what>.json")
    def download(task_id: str, what: str) -> Response:
        with context.queries.turn(task_id):
            found = context.queries.task(task_id)
            value = context.redaction.hide(found.data if what == "data" else found.result)
            text = json.dumps(value, indent=2, ensure_ascii=False).encode("utf-8", "backslashreplace")
        disposition = f'attachment; filename="{what}.json"'
        return Response(text, mimetype="application/json", headers={"Content-Disposition": disposition})

    _add_retries(blueprint, context)
    _add_ends(blueprint, context)
    return blueprint


def _add_retries(blueprint: Blueprint, context: PageContext) -> None:
    @blueprint.post("/tasks/<task_id>/retry")
    @needs(Role.OPERATOR)
    def retry(task_id: str) -> AnyResponse:
        context.actions.retry(person(), task_id)
        return _back(task_id, "The task is back in its queue.")

    @blueprint.post("/tasks/<task_id>/retry-with")
    @needs(Role.OPERATOR)
    def amend(task_id: str) -> AnyResponse | tuple[str, int]:
        text = request.form.get("data", "")
        try:
            context.actions.amend(person(), task_id, text)
        except Refused as error:
            with context.queries.turn(task_id):
                return _show(context, task_id, text, str(error)), 400
        return _back(task_id, "The task is back in its queue, with the new data.")

    @blueprint.post("/tasks/<task_id>/run-now")
    @needs(Role.OPERATOR)
    def run_now(task_id: str) -> AnyResponse:
        context.actions.run_now(person(), task_id)
        return _back(task_id, "The task is in its queue now.")

    @blueprint.post("/tasks/<task_id>/redeliver")
    @needs(Role.OPERATOR)
    def redeliver(task_id: str) -> AnyResponse:
        context.actions.redeliver(person(), task_id)
        return _back(context.queries.task(task_id).delivery_of or task_id, "The delivery is back in its queue.")


def _add_ends(blueprint: Blueprint, context: PageContext) -> None:
    @blueprint.post("/tasks/<task_id>/cancel")
    @needs(Role.OPERATOR)
    def cancel(task_id: str) -> AnyResponse:
        state = context.actions.cancel(person(), task_id)
        asked = state is TaskState.RUNNING
        return _back(task_id, "Cancellation requested." if asked else "The task is cancelled.")

    @blueprint.post("/tasks/<task_id>/delete")
    @needs(Role.ADMIN)
    def delete(task_id: str) -> AnyResponse:
        context.actions.delete(person(), task_id)
        flash(f"Task {task_id} is deleted.")
        return redirect(url_for("dead_letters.groups"))


def _show(context: PageContext, task_id: str, edited: str | None = None, problem: str | None = None) -> str:
    found, now = context.queries.task(task_id), context.queries.look()
    relations = context.queries.relations(found)
    data, result = context.redaction.hide(found.data), context.redaction.hide(found.result)
    return render_template(
        "task.html",
        task=found,
        now=now,
        explanation=explain(
            found, context.queries.position(found.summary), now, _related_tasks(context, found, relations)
        ),
        drawing=draw(relations),
        relations=relations.relatives,
        data=pretty(data),
        result=pretty(result) if found.summary.state is TaskState.COMPLETED else None,
        longest=LONGEST,
        command=_command(context, found, data),
        cause=context.queries.group_of(task_id) if found.summary.state is TaskState.FAILED else None,
        edited=edited if edited is not None else pretty(data),
        problem=problem,
        trace=_trace(context, found),
        fall=timeline(found, now.now()) if not found.summary.corrupt else None,
        deliveries=context.queries.deliveries(found),
    )


def _related_tasks(context: PageContext, found: TaskDetail, relations: Relations) -> RelatedTasks | None:
    """Returns what a blocked task waits for; None in other states."""
    if found.summary.state is not TaskState.BLOCKED:
        return None
    batch_id = found.after_batch or (found.batch.batch_id if found.batch else None)
    try:
        batch = context.queries.batch(batch_id) if batch_id else None
    except BatchNotFound:
        batch = None
    return RelatedTasks(parents=[relations.relatives.get(each.task_id) for each in found.parents], batch=batch)


def _back(task_id: str, message: str) -> AnyResponse:
    flash(message)
    return redirect(url_for("task.task", task_id=task_id))


def _command(context: PageContext, found: TaskDetail, data: object) -> str | None:
    """Returns a command that submits the same task again; None if it is too long for a terminal."""
    url = f"http://localhost:{context.settings.gateway_port}"
    command = as_command(url, found.summary.type, data, found.summary.queue)
    return command if len(command) <= LONGEST else None


def _trace(context: PageContext, found: TaskDetail) -> tuple[str, str] | None:
    """Returns the id of the task's trace and its URL ("" without DASHBOARD_TRACE_URL); None without a trace."""
    parts = str(found.meta.get("traceparent", "")).split("-")
    if len(parts) != 4 or not re.fullmatch("[0-9a-f]{32}", parts[1]):
        return None
    return parts[1], context.settings.trace_url.replace("{trace_id}", parts[1])
