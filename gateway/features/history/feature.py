"""The endpoint for statistics."""

from __future__ import annotations

from firmq.gateway.feature import Feature, Services
from firmq.gateway.features.history.routes import AnalyticsRoutes
from firmq.shared.features.history.records import history_of


def _routes(services: Services) -> list[object]:
    return [AnalyticsRoutes(history_of(services.records))]


FEATURE = Feature(routes=_routes)
