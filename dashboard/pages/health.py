"""Liveness and readiness of the dashboard, without sign-in."""

from __future__ import annotations

from flask import Blueprint

from firmq.dashboard.context import context
from firmq.shared.errors import StoreUnavailable
from firmq.shared.redis.client import translated

blueprint = Blueprint("health", __name__)


@blueprint.get("/health/live")
def live() -> dict[str, str]:
    return {"status": "ok"}


@blueprint.get("/health/ready")
def ready() -> tuple[dict[str, str], int]:
    """Answers 503 while Redis is unavailable, with the reason where no sign-in is required."""
    try:
        with translated():
            context.stores.redis.ping()
    except StoreUnavailable as error:
        reason = {} if context.users.required else {"reason": str(error)}
        return {"status": "unavailable", **reason}, 503
    return {"status": "ok"}, 200
