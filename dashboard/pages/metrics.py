"""For Prometheus, which does not sign in: counts and times, no names and no data."""

from __future__ import annotations

from flask import Blueprint, Response
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from dashboard.metrics import Metrics


def page(metrics: Metrics) -> Blueprint:
    """What this dashboard has counted."""
    blueprint = Blueprint("metrics", __name__)

    @blueprint.get("/metrics")
    def show() -> Response:
        return Response(generate_latest(metrics.registry), content_type=CONTENT_TYPE_LATEST)

    return blueprint
