"""The endpoints of the timeline."""

from __future__ import annotations

from firmq.gateway.feature import Feature, Services
from firmq.gateway.features.timeline.routes import TimelineRoutes
from firmq.shared.features.timeline.incident import Incidents
from firmq.shared.stores.workers import Workers


def _routes(services: Services) -> list[object]:
    workers = Workers(services.scripts.redis, services.settings.lease())
    return [TimelineRoutes(Incidents(services.scripts, workers))]


FEATURE = Feature(routes=_routes)
