"""The endpoints of bulk actions."""

from __future__ import annotations

from firmq.gateway.feature import Feature, Services
from firmq.gateway.features.bulk.routes import BulkRoutes
from firmq.shared.features.bulk.amending import Amendments
from firmq.shared.features.bulk.store import BulkActions


def _routes(services: Services) -> list[object]:
    settings = services.settings
    bulk_actions = BulkActions(services.scripts, services.dead_letters, settings.max_queue_length)
    amendments = Amendments(bulk_actions, services.type_cache, services.redaction)
    return [BulkRoutes(bulk_actions, amendments, settings.default_priority)]


FEATURE = Feature(routes=_routes)
