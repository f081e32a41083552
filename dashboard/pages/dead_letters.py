"""Dead letters grouped by cause: count, open, retry or delete a group or selected tasks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flask import Blueprint, abort, flash, redirect, render_template, request, url_for

from dashboard.queries import GROUPS

if TYPE_CHECKING:
    from werkzeug.wrappers import Response

    from dashboard.app import PageContext

LAST = 1_000_000
"""The last page that can be asked for; it bounds the offset at fifty million causes."""


def page(context: PageContext) -> Blueprint:
    """`/dead-letters`"""
    blueprint = Blueprint("dead_letters", __name__)

    @blueprint.get("/dead-letters")
    def groups() -> str:
        at = max(0, request.args.get("page", 0, int))
        if at > LAST:
            abort(400, "invalid cursor: open the list from its first page")
        found, total = context.queries.groups(at)
        return render_template(
            "dead_letters.html",
            now=context.queries.look(),
            groups=found,
            total=total,
            at=at,
            more=total > (at + 1) * GROUPS,
            actions=[each for each in context.queries.bulk_actions()[0] if each.open],
        )

    @blueprint.get("/dead-letters/<key>")
    def group(key: str) -> str | Response:
        found = context.queries.group(key)
        if found is None:
            flash("No dead letter of this cause is left.")
            return redirect(url_for("dead_letters.groups"))
        try:
            page = context.queries.dead(key, request.args.get("cursor"))
        except ValueError:
            abort(400, "invalid cursor: open the list from its first page")
        return render_template(
            "dead_letter_group.html",
            now=context.queries.look(),
            group=found,
            page=page,
            cursor=request.args.get("cursor"),
        )

    return blueprint
