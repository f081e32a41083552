"""Metrics for Prometheus, without sign-in: counts and durations, no names and no data."""

from __future__ import annotations

from flask import Blueprint, Response
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from firmq.dashboard.context import context

blueprint = Blueprint("metrics", __name__)


@blueprint.get("/metrics")
def show() -> Response:
    return Response(generate_latest(context.metrics.registry), content_type=CONTENT_TYPE_LATEST)
