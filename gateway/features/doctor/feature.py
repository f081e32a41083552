"""The endpoint of the doctor."""

from __future__ import annotations

from firmq.gateway.feature import Feature, Services
from firmq.gateway.features.doctor.routes import DoctorRoutes


def _routes(services: Services) -> list[object]:
    return [DoctorRoutes(services.settings, services.scripts.redis, services.version)]


FEATURE = Feature(routes=_routes)
