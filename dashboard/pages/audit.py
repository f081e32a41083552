"""The audit record: changes, their authors and times."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from flask import Blueprint, abort, render_template, request

if TYPE_CHECKING:
    from dashboard.app import PageContext


def page(context: PageContext) -> Blueprint:
    """`/audit`"""
    blueprint = Blueprint("audit", __name__)

    @blueprint.get("/audit")
    def audit() -> str:
        before = request.args.get("before")
        if before and not re.fullmatch("[0-9]{1,19}-[0-9]{1,19}", before):
            abort(400, "invalid cursor: open the list from its first page")
        entries, older = context.queries.history(before)
        return render_template("audit.html", now=context.queries.look(), entries=entries, older=older, before=before)

    return blueprint
