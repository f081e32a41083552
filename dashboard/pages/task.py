"""One task: its whole record, and the actions on it."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

from flask import Blueprint, Response, request, url_for
from werkzeug.exceptions import BadRequest

from firmq.dashboard import editing
from firmq.dashboard.auth.security import needs, person
from firmq.dashboard.auth.users import Role
from firmq.dashboard.context import changed, context, show
from firmq.dashboard.explain.graph import draw
from firmq.dashboard.explain.status import RelatedTasks, explain
from firmq.dashboard.explain.timeline import timeline
from firmq.dashboard.present import as_command, options_of_copy, pretty, size
from firmq.shared.domain.payload import PayloadReference
from firmq.shared.domain.task import INTERNAL_TYPES, TaskDetail, TaskState
from firmq.shared.errors import BatchNotFound
from firmq.shared.stores.dependencies import Relations
from firmq.shared.stores.tasks import Reading

if TYPE_CHECKING:
    from werkzeug.wrappers import Response as AnyResponse

LONGEST = 32_768
"""Characters of data or of a result that the page shows; the whole value can be downloaded."""

blueprint = Blueprint("task", __name__)


@blueprint.get("/tasks/<task_id>")
def task(task_id: str) -> str:
    with context.queries.task(task_id) as reading:
        return show_task(reading)


@blueprint.get("/tasks/<task_id>/<any(data, result):what>.json")
def download(task_id: str, what: str) -> Response:
    with context.queries.task(task_id) as reading:
        stored = reading.detail.data if what == "data" else reading.detail.result
        value = context.redaction.hide(context.stores.tasks.payloads.read(stored))
        text = json.dumps(value, indent=2, ensure_ascii=False).encode("utf-8", "backslashreplace")
    disposition = f'attachment; filename="{what}.json"'
    return Response(text, mimetype="application/json", headers={"Content-Disposition": disposition})


@blueprint.post("/tasks/<task_id>/retry")
@needs(Role.OPERATOR)
def retry(task_id: str) -> AnyResponse:
    context.stores.dead_letters.requeue(task_id)
    return _changed("retried", task_id, "The task is back in its queue.")


@blueprint.post("/tasks/<task_id>/retry-with")
@needs(Role.OPERATOR)
def amend(task_id: str) -> AnyResponse | tuple[str, int]:
    text, found = request.form.get("data", ""), context.stores.tasks.get(task_id)
    try:
        editing.demand_own(found.summary.type)
        data = editing.restore(editing.parse(text), found.data)
        editing.demand_valid(found.summary.type, data)
    except BadRequest as error:
        with context.queries.task(task_id) as reading:
            return show_task(reading, text, error.description), 400
    context.stores.dead_letters.amend(task_id, found.summary.type, data)
    return _changed("retried with other data", task_id, "The task is back in its queue, with the new data.")


@blueprint.post("/tasks/<task_id>/run-now")
@needs(Role.OPERATOR)
def run_now(task_id: str) -> AnyResponse:
    context.stores.queues.run_now(task_id)
    return _changed("ran now", task_id, "The task is in its queue now.")


@blueprint.post("/tasks/<task_id>/cancel")
@needs(Role.OPERATOR)
def cancel(task_id: str) -> AnyResponse:
    state = context.stores.queues.cancel(task_id, f"by {person().name} in the dashboard")
    message = "Cancellation requested." if state is TaskState.RUNNING else "The task is cancelled."
    return _changed("cancelled", task_id, message)


@blueprint.post("/tasks/<task_id>/restore")
@needs(Role.OPERATOR)
def restore(task_id: str) -> AnyResponse:
    context.stores.queues.restore(task_id)
    return _changed("restored", task_id, "The task is restored.")


@blueprint.post("/tasks/<task_id>/delete")
@needs(Role.ADMIN)
def delete(task_id: str) -> AnyResponse:
    if not context.stores.tasks.discard(task_id):
        context.stores.dead_letters.purge(task_id)
    return changed("deleted", task_id, to=url_for("dead_letters.groups"), message=f"Task {task_id} is deleted.")


def _changed(what: str, task_id: str, message: str) -> AnyResponse:
    return changed(what, task_id, to=url_for(".task", task_id=task_id), message=message)


def show_task(reading: Reading, edited: str | None = None, problem: str | None = None, **more: object) -> str:
    """Returns the page of a task. `more` is for the templates that features put into it."""
    found, now = reading.detail, context.queries.snapshot()
    state, relations = found.summary.state, context.queries.relations(found)
    data = _text(found.data)
    return show(
        "task.html",
        task=found,
        explanation=explain(found, reading.position, now, _related_tasks(found, relations)),
        drawing=draw(relations),
        relations=relations.relatives,
        data=data,
        result=_text(found.result) if state is TaskState.COMPLETED else None,
        longest=LONGEST,
        command=_command(found),
        editable=found.summary.type not in INTERNAL_TYPES,
        cause=reading.cause if state is TaskState.FAILED else None,
        edited=edited if edited is not None else "" if isinstance(found.data, PayloadReference) else data,
        problem=problem,
        trace=_trace(found),
        timeline=timeline(found, now.now()) if not found.summary.corrupt else None,
        **more,
    )


def _related_tasks(found: TaskDetail, relations: Relations) -> RelatedTasks | None:
    """Returns the waits of a blocked task; None in other states."""
    if found.summary.state is not TaskState.BLOCKED:
        return None
    batch_id = found.after_batch or (found.batch.batch_id if found.batch else None)
    try:
        batch = context.queries.batch(batch_id) if batch_id else None
    except BatchNotFound:
        batch = None
    return RelatedTasks(parents=[relations.relatives.get(each.task_id) for each in found.parents], batch=batch)


def _text(value: object) -> str:
    """Returns data or a result as the page shows it; a payload is read for its download only."""
    if isinstance(value, PayloadReference):
        return f"{size(value.size)} in the payload store: see the download"
    return pretty(context.redaction.hide(value))


def _command(found: TaskDetail) -> str | None:
    """Returns a command that submits the same task again; None if the API refuses that, or a terminal its length."""
    if isinstance(found.data, PayloadReference) or found.summary.type in INTERNAL_TYPES:
        return None
    data = context.redaction.hide(found.data)
    url = f"http://localhost:{context.settings.gateway_port}"
    command = as_command(url, found.summary.type, data, options_of_copy(found))
    return command if len(command) <= LONGEST else None


def _trace(found: TaskDetail) -> tuple[str, str] | None:
    """Returns the id of the task's trace and its URL ("" without DASHBOARD_TRACE_URL); None without a trace."""
    parts = str(found.meta.get("traceparent", "")).split("-")
    if len(parts) != 4 or not re.fullmatch("[0-9a-f]{32}", parts[1]):
        return None
    return parts[1], context.settings.trace_url.replace("{trace_id}", parts[1])
