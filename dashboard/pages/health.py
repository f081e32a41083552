"""Liveness and readiness of the dashboard."""

from __future__ import annotations

from flask import Blueprint
from redis import Redis

from shared.errors import StoreUnavailable
from shared.redis.client import translated


def page(redis: Redis, users: bool) -> Blueprint:
    """Returns the probes, which need no sign-in; with `users` set, their answers omit the reason of a failure."""
    blueprint = Blueprint("health", __name__)

    @blueprint.get("/health/live")
    def live() -> dict[str, str]:
        return {"status": "ok"}

    @blueprint.get("/health/ready")
    def ready() -> tuple[dict[str, str], int]:
        try:
            with translated():
                redis.ping()
        except StoreUnavailable as error:
            return {"status": "unavailable"} if users else {"status": "unavailable", "reason": str(error)}, 503
        return {"status": "ok"}, 200

    return blueprint
