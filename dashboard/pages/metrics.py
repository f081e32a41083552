"""Metrics for Prometheus, without sign-in: counts and durations, no names and no data."""

from __future__ import annotations

from flask import Blueprint, Response
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from dashboard.metrics import Metrics


def page(metrics: Metrics) -> Blueprint:
    """Returns the page `/metrics`."""
    blueprint = Blueprint("metrics", __name__)

    @blueprint.get("/metrics")
    def show() -> Response:
        return Response(generate_latest(metrics.registry), content_type=CONTENT_TYPE_LATEST)

    return blueprint
