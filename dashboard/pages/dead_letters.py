"""Dead letters grouped by cause: count, open, retry or delete a group or selected tasks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flask import Blueprint, abort, flash, redirect, request, url_for

from firmq.dashboard.context import context, show
from firmq.dashboard.queries import PAGE

if TYPE_CHECKING:
    from werkzeug.wrappers import Response

LAST = 1_000_000
"""The last page that can be requested; it bounds the offset at fifty million causes."""

blueprint = Blueprint("dead_letters", __name__)


@blueprint.get("/dead-letters")
def groups() -> str:
    at = max(0, request.args.get("page", 0, int))
    if at > LAST:
        abort(400, "invalid cursor: open the list from its first page")
    found, total = context.queries.failure_groups(at)
    more = total > (at + 1) * PAGE
    return show("dead_letters.html", groups=found, total=total, at=at, more=more)


@blueprint.get("/dead-letters/<key>")
def group(key: str) -> str | Response:
    found, cursor = context.queries.failure_group(key), request.args.get("cursor")
    if found is None:
        flash("No dead letter of this cause is left.")
        return redirect(url_for(".groups"))
    try:
        page = context.queries.dead_letters(key, cursor)
    except ValueError:
        abort(400, "invalid cursor: open the list from its first page")
    return show(
        "dead_letter_group.html",
        key=key,
        group=found,
        page=page,
        cursor=cursor,
    )
