"""The whole system on one page."""

from __future__ import annotations

import json

from flask import Blueprint

from taskqueue.dashboard.context import context, show
from taskqueue.dashboard.explain.alerts import alerts
from taskqueue.dashboard.overview import Snapshot

blueprint = Blueprint("overview", __name__)


@blueprint.get("/")
def overview() -> str:
    now = context.queries.snapshot()
    charts, gateway_port = json.dumps(_charts(now)), context.settings.gateway_port
    return show("overview.html", alerts=alerts(now), charts=charts, gateway_port=gateway_port)


def _charts(now: Snapshot) -> dict[str, list[int]]:
    """Returns the counts of the last sixty minutes as series for the charts."""
    minutes = now.minutes
    unlucky = ("failed", "lost")
    return {
        "minute": [each * 60 for each in minutes],
        "submitted": [counts.get("submitted", 0) for counts in minutes.values()],
        "completed": [counts.get("completed", 0) for counts in minutes.values()],
        "retried": [counts.get("retrying", 0) for counts in minutes.values()],
        "failed": [sum(counts.get(name, 0) for name in unlucky) for counts in minutes.values()],
    }
