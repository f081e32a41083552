"""Statistics of ended tasks over a range; each column leads to the tasks that ended in it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flask import Blueprint, redirect, request, url_for

from firmq.dashboard.context import context, show
from firmq.dashboard.report import read_wanted, report_values

if TYPE_CHECKING:
    from werkzeug.wrappers import Response

blueprint = Blueprint("analytics", __name__)


@blueprint.get("/analytics")
def analytics() -> str | Response:
    if task_type := request.args.get("type", "").strip()[:200]:
        query: dict[str, Any] = {
            name: request.args[name] for name in ("range", "until", "queue", "version") if name in request.args
        }
        return redirect(url_for("types.type_page", name=task_type, **query))
    if not context.settings.history_url:
        return show("analytics.html", report=None)
    return show("analytics.html", **report_values(read_wanted(None)))
