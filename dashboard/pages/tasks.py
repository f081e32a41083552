"""Search by id, status, type, queue, tag and time. The URL contains the whole query, so it can be shared."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from flask import Blueprint, abort, redirect, request, url_for

from taskqueue.dashboard.context import context, show
from taskqueue.shared.domain.task import TaskState
from taskqueue.shared.stores.tasks import Filter

if TYPE_CHECKING:
    from werkzeug.wrappers import Response

_FIELDS = ("id", "status", "type", "queue", "tag", "since", "until")

blueprint = Blueprint("tasks", __name__)


@blueprint.get("/tasks")
def tasks() -> str | Response:
    asked = {name: request.args.get(name, "").strip()[:200] for name in _FIELDS}
    cursor = request.args.get("cursor")
    if asked["id"]:
        return redirect(url_for("task.task", task_id=asked["id"]))
    try:
        page = context.queries.tasks(_filter(asked), cursor)
    except ValueError as error:
        abort(400, f"invalid filter: {error}")
    given = {name: value for name, value in asked.items() if value}
    return show("tasks.html", page=page, asked=asked, given=given, states=list(TaskState), cursor=cursor)


def _filter(asked: dict[str, str]) -> Filter:
    """Returns the filter of a query. Raises ValueError if a part of it is invalid."""
    return Filter(
        state=TaskState(asked["status"]) if asked["status"] else None,
        type=asked["type"] or None,
        queue=asked["queue"] or None,
        tag=asked["tag"] or None,
        since=_moment(asked["since"]),
        until=_moment(asked["until"]),
    )


def _moment(text: str) -> datetime | None:
    """Returns a moment from the form (in UTC) or from any ISO 8601 text; None for an empty one."""
    if not text:
        return None
    at = datetime.fromisoformat(text)
    return at if at.tzinfo else at.replace(tzinfo=UTC)
