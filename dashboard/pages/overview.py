"""The whole system on one page."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from flask import Blueprint, render_template

from dashboard.explain.alerts import alerts
from dashboard.overview import Snapshot

if TYPE_CHECKING:
    from dashboard.app import PageContext


def page(context: PageContext) -> Blueprint:
    """`/`"""
    blueprint = Blueprint("overview", __name__)

    @blueprint.get("/")
    def overview() -> str:
        now = context.queries.look()
        return render_template(
            "overview.html",
            now=now,
            alerts=alerts(now),
            charts=json.dumps(_charts(now)),
            gateway_port=context.settings.gateway_port,
        )

    return blueprint


def _charts(now: Snapshot) -> dict[str, list[int]]:
    """Returns the counts of the last sixty minutes as series for the charts."""
    minutes = now.minutes
    unlucky = ("failed", "poisoned", "lost", "crashed")
    return {
        "minute": [each * 60 for each in minutes],
        "submitted": [counts.get("submitted", 0) for counts in minutes.values()],
        "completed": [counts.get("completed", 0) for counts in minutes.values()],
        "retried": [counts.get("retrying", 0) for counts in minutes.values()],
        "failed": [sum(counts.get(name, 0) for name in unlucky) for counts in minutes.values()],
    }
