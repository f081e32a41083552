"""Batches: progress, tasks, and actions on a whole batch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flask import Blueprint, abort, request, url_for

from firmq.dashboard.auth.security import needs, person
from firmq.dashboard.auth.users import Role
from firmq.dashboard.context import changed, context, show
from firmq.shared.domain.task import TaskState

if TYPE_CHECKING:
    from werkzeug.wrappers import Response

blueprint = Blueprint("batches", __name__)


@blueprint.get("/batches")
def batches() -> str:
    cursor = request.args.get("cursor")
    try:
        found, older, _ = context.queries.batches(cursor)
    except ValueError:
        abort(400, "invalid cursor: open the list from its first page")
    return show("batches.html", batches=found, older=older, cursor=cursor)


@blueprint.get("/batches/<batch_id>")
def batch(batch_id: str) -> str:
    state = request.args.get("status", "")
    after = request.args.get("after", -1, int)
    wanted = TaskState(state) if state in list(TaskState) else None
    items, behind = context.queries.batch_items(batch_id, after, wanted)
    return show(
        "batch.html",
        batch=context.queries.batch(batch_id),
        items=items,
        behind=behind,
        after=after,
        wanted=wanted,
        states=list(TaskState),
    )


@blueprint.post("/batches/<batch_id>/cancel")
@needs(Role.OPERATOR)
def cancel(batch_id: str) -> Response:
    context.stores.batches.cancel(batch_id, f"by {person().name} in the dashboard")
    message = "No further task of this batch starts; running tasks are being cancelled."
    return changed("cancelled batch", batch_id, to=url_for(".batch", batch_id=batch_id), message=message)


@blueprint.post("/batches/<batch_id>/retry")
@needs(Role.OPERATOR)
def retry(batch_id: str) -> Response:
    context.stores.batches.retry_failed(batch_id)
    to = url_for(".batch", batch_id=batch_id)
    return changed("retried failures of batch", batch_id, to=to, message="Its failed tasks are being retried.")
