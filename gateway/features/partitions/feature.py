"""The gateway of several partitions: an app for each, and the router in front of them."""

from __future__ import annotations

import threading
from typing import Any

from firmq.gateway.app import create_app
from firmq.gateway.feature import Feature
from firmq.gateway.features.partitions.members import Member, Members
from firmq.gateway.features.partitions.router import Router
from firmq.gateway.metrics import Metrics
from firmq.shared.config.settings import Settings
from firmq.shared.redis.client import connect_for


def create_router(settings: Settings, metrics: Metrics | None = None, waiters: int = 8) -> Router:
    """Builds the gateway of several partitions: an app for each, and the router in front of them."""
    members = list[Member]()
    config = {"STOPPING": threading.Event(), "MAX_CONTENT_LENGTH": settings.max_body_bytes}
    shared: dict[str, Any] = {
        "metrics": metrics or Metrics(),
        "waiters": max(1, waiters // len(settings.stores)),
        "stopping": config["STOPPING"],
    }
    for number, own in settings.stores.items():
        # One authenticator for all: with one each, a client would have the rate of its key once per partition.
        app = create_app(own, connect_for(own, "gateway"), **shared)
        shared |= {name: app.extensions[name] for name in ("tracing", "authenticator")}
        members.append(Member(number, app, own))
    return Router(Members(members), config)


FEATURE = Feature(serve=create_router)
