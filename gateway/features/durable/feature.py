"""The endpoints that send signals and stream output."""

from __future__ import annotations

from firmq.gateway.feature import Feature, Services
from firmq.gateway.features.durable.events import OutputRoutes
from firmq.gateway.features.durable.routes import SignalRoutes
from firmq.shared.features.durable.output import Outputs
from firmq.shared.features.durable.signals import Signals


def _routes(services: Services) -> list[object]:
    signals = Signals.of(services.scripts, services.settings)
    outputs = Outputs(services.scripts.redis)
    return [
        SignalRoutes(signals, services.records),
        OutputRoutes(services.events, outputs, services.redaction),
    ]


FEATURE = Feature(routes=_routes)
