"""Any task found: by id, status, type, priority, tag and time. What is shown is in the address, so it can be shared."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from flask import Blueprint, abort, redirect, render_template, request, url_for

from shared.domain.task import TaskState
from shared.stores.tasks import Filter

if TYPE_CHECKING:
    from werkzeug.wrappers import Response

    from dashboard.app import PageContext

_FIELDS = ("id", "status", "type", "priority", "tag", "since", "until")


def page(context: PageContext) -> Blueprint:
    """`/tasks`"""
    blueprint = Blueprint("tasks", __name__)

    @blueprint.get("/tasks")
    def tasks() -> str | Response:
        asked = {name: request.args.get(name, "").strip()[:200] for name in _FIELDS}
        if asked["id"]:
            return redirect(url_for("task.task", task_id=asked["id"]))
        try:
            found = context.queries.tasks(_filter(asked), request.args.get("cursor"))
        except ValueError as error:
            abort(400, f"this address asks for something that cannot be: {error}")
        given = {name: value for name, value in asked.items() if value}
        return render_template(
            "tasks.html",
            now=context.queries.look(),
            page=found,
            asked=asked,
            given=given,
            states=list(TaskState),
            cursor=request.args.get("cursor"),
        )

    return blueprint


def _filter(asked: dict[str, str]) -> Filter:
    """Raises ValueError when a part of it cannot be."""
    return Filter(
        state=TaskState(asked["status"]) if asked["status"] else None,
        type=asked["type"] or None,
        queue=asked["priority"] or None,
        tag=asked["tag"] or None,
        since=_moment(asked["since"]),
        until=_moment(asked["until"]),
    )


def _moment(text: str) -> datetime | None:
    """A moment as the form sends it (in UTC) or as anybody may write it."""
    if not text:
        return None
    at = datetime.fromisoformat(text)
    return at if at.tzinfo else at.replace(tzinfo=UTC)
