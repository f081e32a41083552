"""Lists tasks by a search and a filter. The URL contains the whole query, so it can be shared."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from flask import Blueprint, abort, redirect, request, url_for

from firmq.dashboard.context import context, show
from firmq.dashboard.filters import FIELDS, given, read_filter
from firmq.shared.domain.search import LONGEST
from firmq.shared.domain.task import TaskState
from firmq.shared.stores.tasks import Filter

if TYPE_CHECKING:
    from werkzeug.wrappers import Response

blueprint = Blueprint("tasks", __name__)


@blueprint.get("/tasks")
def tasks() -> str | Response:
    asked, cursor = given(request.args), request.args.get("cursor")
    if task_id := request.args.get("id", "").strip()[:200]:
        return redirect(url_for("task.task", task_id=task_id))
    wanted = read_filter(request.args)
    if wanted.id and wanted == Filter(id=wanted.id) and context.queries.states([wanted.id]):
        return redirect(url_for("task.task", task_id=wanted.id))
    try:
        page = context.queries.tasks(wanted, cursor)
    except ValueError as error:
        abort(400, f"invalid filter: {error}")
    return show(
        "tasks.html",
        page=page,
        asked={name: asked.get(name, "") for name in FIELDS},
        most=LONGEST,
        given=asked,
        states=list(TaskState),
        cursor=cursor,
        kept=timedelta(seconds=context.settings.retention_deleted),
        wanted=wanted,
    )
