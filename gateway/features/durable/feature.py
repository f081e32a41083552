"""The endpoint that sends signals."""

from __future__ import annotations

from firmq.gateway.feature import Feature, Services
from firmq.gateway.features.durable.routes import SignalRoutes
from firmq.shared.features.durable.signals import Signals


def _routes(services: Services) -> list[object]:
    return [SignalRoutes(Signals.of(services.scripts, services.settings), services.records)]


FEATURE = Feature(routes=_routes)
