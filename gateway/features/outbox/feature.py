"""The endpoint for relays of outboxes."""

from __future__ import annotations

from datetime import timedelta

from firmq.gateway.feature import Feature, Services
from firmq.gateway.features.outbox.routes import OutboxRoutes
from firmq.shared.features.outbox.receipts import Receipts
from firmq.shared.features.outbox.receiver import OutboxReceiver


def _routes(services: Services) -> list[object]:
    keep = timedelta(seconds=services.settings.idempotency_ttl)
    receipts = Receipts(services.scripts, keep, services.queues.bounds)
    return [OutboxRoutes(OutboxReceiver(services.task_factory, receipts), services.metrics)]


FEATURE = Feature(routes=_routes)
