"""Sends signals from the page of a task."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flask import Blueprint, request, url_for
from werkzeug.exceptions import BadRequest

from firmq.dashboard import editing
from firmq.dashboard.auth.security import needs, person
from firmq.dashboard.auth.users import Role
from firmq.dashboard.context import changed, context, opened
from firmq.dashboard.forms import Group, read
from firmq.dashboard.pages.task import show_task
from firmq.shared.features.durable.signals import check_signal
from firmq.shared.submission.refusals import Refusal

if TYPE_CHECKING:
    from werkzeug.wrappers import Response as AnyResponse

blueprint = Blueprint("durable", __name__, template_folder="templates")


@blueprint.post("/tasks/<task_id>/signals/<name>")
@needs(Role.OPERATOR)
def signal(task_id: str, name: str) -> AnyResponse | tuple[str, int]:
    value, _, mistakes = read(request.form, context.settings.max_json_depth)
    if not request.form.get(f"{Group.WHOLE}/json/", "null").strip():
        mistakes.append((("data",), "enter the data as JSON: null for none"))
    replaces = "" if "replace" not in request.form else "admin" if person().may(Role.ADMIN) else "operate"
    try:
        if not mistakes:
            replaced = opened("durable").signals.send(task_id, name, value, person().name, replaces, check_signal)
            what = f"{'replaced' if replaced else 'sent'} signal {name} of"
            to = url_for("task.task", task_id=task_id)
            return changed(what, task_id, to=to, message=f"The task has signal {name}.")
    except Refusal as refusal:
        mistakes = editing.mistakes_of(refusal, value)
    except ValueError as error:
        raise BadRequest(str(error)) from None
    with context.queries.task(task_id) as reading:
        return show_task(reading, wrong=(name, mistakes)), 400
