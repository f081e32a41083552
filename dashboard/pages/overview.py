"""The whole system on one page."""

from __future__ import annotations

import json
from typing import Any

from flask import Blueprint

from firmq.dashboard.context import context, show
from firmq.dashboard.explain.charts import minute_marks
from firmq.dashboard.explain.executors import SHOWN, busy, busy_types
from firmq.dashboard.overview import Snapshot
from firmq.shared.conditions.conditions import alerts, by_cause

blueprint = Blueprint("overview", __name__)


@blueprint.get("/")
def overview() -> str:
    now = context.queries.snapshot()
    charts, gateway_port = json.dumps(_charts(now)), context.settings.gateway_port
    kinds = [kind for kind, _ in busy_types(now.workers)[:SHOWN]]
    return show(
        "overview.html",
        alerts=by_cause((None, each) for each in alerts(now)),
        busy=busy(now.workers, context.queries.usual_times(kinds), now.now()) if kinds else None,
        charts=charts,
        gateway_port=gateway_port,
    )


def _charts(now: Snapshot) -> dict[str, Any]:
    """Returns the counts of the last sixty minutes as series for the charts, and the deploys among them."""
    minutes = now.minutes
    unlucky = ("failed", "lost")
    return {
        "deploys": minute_marks(minutes, now.deploys),
        "minute": [each * 60 for each in minutes],
        "submitted": [counts.get("submitted", 0) for counts in minutes.values()],
        "completed": [counts.get("completed", 0) for counts in minutes.values()],
        "retried": [counts.get("retrying", 0) for counts in minutes.values()],
        "failed": [sum(counts.get(name, 0) for name in unlucky) for counts in minutes.values()],
    }
