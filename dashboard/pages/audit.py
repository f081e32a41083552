"""The audit record: changes, their authors and times."""

from __future__ import annotations

import re

from flask import Blueprint, abort, request

from taskqueue.dashboard.context import context, show

blueprint = Blueprint("audit", __name__)


@blueprint.get("/audit")
def audit() -> str:
    before = request.args.get("before")
    if before and not re.fullmatch("[0-9]{1,19}-[0-9]{1,19}", before):
        abort(400, "invalid cursor: open the list from its first page")
    entries, older = context.queries.audit(before)
    return show("audit.html", entries=entries, older=older, before=before)
