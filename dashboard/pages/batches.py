"""Batches: progress, tasks, and actions on a whole batch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flask import Blueprint, abort, flash, redirect, render_template, request, url_for

from dashboard.auth.security import needs, person
from dashboard.auth.users import Role
from shared.domain.task import TaskState

if TYPE_CHECKING:
    from werkzeug.wrappers import Response

    from dashboard.app import PageContext


def page(context: PageContext) -> Blueprint:
    """`/batches` and `/batches/ID`"""
    blueprint = Blueprint("batches", __name__)

    @blueprint.get("/batches")
    def batches() -> str:
        try:
            found, older = context.queries.batches_page(request.args.get("cursor"))
        except ValueError:
            abort(400, "invalid cursor: open the list from its first page")
        return render_template(
            "batches.html", now=context.queries.look(), batches=found, older=older, cursor=request.args.get("cursor")
        )

    @blueprint.get("/batches/<batch_id>")
    def batch(batch_id: str) -> str:
        state = request.args.get("status", "")
        after = request.args.get("after", -1, int)
        wanted = TaskState(state) if state in list(TaskState) else None
        items, behind = context.queries.batch_items(batch_id, after, wanted)
        return render_template(
            "batch.html",
            now=context.queries.look(),
            batch=context.queries.batch(batch_id),
            items=items,
            behind=behind,
            after=after,
            wanted=wanted,
            states=list(TaskState),
        )

    _add_changes(blueprint, context)
    return blueprint


def _add_changes(blueprint: Blueprint, context: PageContext) -> None:
    @blueprint.post("/batches/<batch_id>/cancel")
    @needs(Role.OPERATOR)
    def cancel(batch_id: str) -> Response:
        context.actions.cancel_batch(person(), batch_id)
        flash("No further task of this batch starts; running tasks are being cancelled.")
        return redirect(url_for("batches.batch", batch_id=batch_id))

    @blueprint.post("/batches/<batch_id>/retry")
    @needs(Role.OPERATOR)
    def retry(batch_id: str) -> Response:
        context.actions.retry_batch(person(), batch_id)
        flash("Its failed tasks are being retried.")
        return redirect(url_for("batches.batch", batch_id=batch_id))
