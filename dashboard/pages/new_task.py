"""Submit a task with a form made from the schema of its type, from scratch or as a changed copy of another."""

from __future__ import annotations

import json
import secrets
from typing import TYPE_CHECKING, Any

from flask import Blueprint, abort, redirect, request, url_for

from firmq.dashboard import editing
from firmq.dashboard.auth.security import needs, person
from firmq.dashboard.auth.users import Role
from firmq.dashboard.context import changed, context, show
from firmq.dashboard.forms import Field, Mistakes, Path, blamed, fields_of, filled, options_of, read
from firmq.dashboard.present import options_of_copy
from firmq.shared.domain.payload import PayloadReference
from firmq.shared.domain.task import TaskDetail, new_task_id
from firmq.shared.errors import KeyBelongsToAnother, RequestInProgress
from firmq.shared.observability.tracing import current_traceparent
from firmq.shared.submission.bodies import NewTaskBody, read_body
from firmq.shared.submission.identity import identity
from firmq.shared.submission.refusals import Refusal
from firmq.shared.submission.task_factory import Submitter, refusal_of

if TYPE_CHECKING:
    from werkzeug.wrappers import Response

blueprint = Blueprint("new_task", __name__)

LONGEST = 16_384
"""Characters of data that a form shows."""
MOST = 500
"""Types to choose from."""
OPTIONS = (
    Field(key="queue", label="Queue", help="empty: the queue of the type"),
    Field(key="delay", kind="number", label="Delay", help="seconds before it may run"),
    Field(key="tags", kind="words", label="Tags", help="words, separated by spaces"),
    Field(
        key="options",
        kind="json",
        widget="json",
        label="Other options",
        help='as in POST /tasks, such as {"max_retries": 1, "unique_key": "…"}',
    ),
)
SENT = "this form has already created a task with other values; submit it again to create another one"


@blueprint.get("/tasks/new")
@needs(Role.OPERATOR)
def form() -> str:
    task_type, source = request.args.get("type", "").strip()[:100], request.args.get("from", "").strip()[:200]
    if source:
        task = _read(source)
        fields = fields_of(_schema(task.summary.type), context.redaction, context.redaction.hide(task.data))
        return _show(task.summary.type, [*fields, *options_of(OPTIONS, options_of_copy(task))], source)
    if not task_type:
        names = context.stores.type_cache.names()
        return show("new_task.html", type="", names=names[:MOST], left_out=max(0, len(names) - MOST))
    editing.demand_own(task_type)
    return _show(task_type, [*fields_of(_schema(task_type), context.redaction), *OPTIONS])


@blueprint.post("/tasks/submit")
@needs(Role.OPERATOR)
def submit() -> Response | tuple[str, int]:
    task_type, source = request.form.get("type", "")[:100], request.form.get("from", "")[:200]
    editing.demand_own(task_type)
    data, options, mistakes = read(request.form, context.settings.max_json_depth)
    try:
        data = context.redaction.restore(data, _read(source).data if source else None)
    except ValueError as error:
        mistakes.append((("data",), str(error)))
    value = {**options, "type": task_type, "data": data}
    if not mistakes:
        mistakes = _mistakes(value)
    if mistakes:
        return _refused(task_type, source, mistakes)
    return _submit(task_type, source, value)


def _mistakes(value: dict[str, Any]) -> list[tuple[Path, str]]:
    mistakes = editing.mistakes_in(value["type"], value["data"], demand_type=True)
    try:
        read_body(NewTaskBody, value, context.stores.task_factory.context)
    except Refusal as refusal:
        mistakes += editing.mistakes_of(refusal, value["data"])
    return mistakes


def _submit(task_type: str, source: str, value: dict[str, Any]) -> Response | tuple[str, int]:
    """Stores the task of a form, once however often the form is sent."""
    name, stores = person().name, context.stores
    try:
        wanted = identity(f"dashboard {name}", request.form.get("form_id", ""), "/tasks/submit", value)
        body = read_body(NewTaskBody, value, stores.task_factory.context)
        task = stores.task_factory.new(body, new_task_id(stores.task_factory.mark), Submitter(name=name))
        with stores.task_factory.traced(task, current_traceparent()) as traced:
            stored, again = stores.idempotency.submit(wanted, traced)
    except Refusal as error:
        return _refused(task_type, source, editing.mistakes_of(error, value["data"]))
    except (KeyBelongsToAnother, RequestInProgress):
        return _refused(task_type, source, [((), SENT)], 409)
    if refusal := refusal_of(task, stored):
        return _refused(task_type, source, editing.mistakes_of(refusal, value["data"]), refusal.kind.status)
    to = url_for("task.task", task_id=stored.id)
    if again or stored.existing:
        return redirect(to)
    return changed(
        "submitted", stored.id, f"copy of {source}" if source else "", to=to, message="The task is submitted."
    )


def _refused(task_type: str, source: str, mistakes: Mistakes, status: int = 400) -> tuple[str, int]:
    fields = filled([*fields_of(_schema(task_type), context.redaction), *OPTIONS], request.form, context.redaction)
    return _show(task_type, fields, source, mistakes), status


def _show(task_type: str, fields: list[Field], source: str = "", mistakes: Mistakes = ()) -> str:
    fields, others = blamed(fields, mistakes)
    return show(
        "new_task.html",
        type=task_type,
        source=source,
        form_id=secrets.token_urlsafe(16),
        published=context.stores.type_cache.get(task_type),
        fields=fields,
        others=others,
    )


def _schema(task_type: str) -> Any:
    found = context.stores.type_cache.get(task_type)
    return found.schema if found else {}


def _read(task_id: str) -> TaskDetail:
    """Returns a task to copy. Ends the request with 400 if a form cannot show its data."""
    found = context.stores.all_tasks.record(task_id)
    editing.demand_own(found.summary.type)
    if found.summary.corrupt:
        abort(400, f"this task cannot be copied: {found.summary.corrupt}")
    if isinstance(found.data, PayloadReference) or len(json.dumps(found.data)) > LONGEST:
        abort(400, "the data of this task is too large for a form: download it and use firmq submit TYPE @FILE")
    return found
