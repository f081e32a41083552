"""The job that carries out bulk actions."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from firmq.shared.domain.redaction import Redaction
from firmq.shared.features.bulk.store import BulkActions
from firmq.shared.stores.dead_letters import DeadLetters
from firmq.shared.stores.task_types import TaskTypes
from firmq.worker.feature import Feature, Services
from firmq.worker.features.bulk.job import Bulk


def _jobs(services: Services) -> list[Bulk]:
    settings, scripts = services.settings, services.scripts
    kept = timedelta(seconds=settings.retention_deleted)
    bulk_actions = BulkActions(scripts, DeadLetters(scripts, services.records, services.tracing, kept))

    def amend(ids: Sequence[str], patch: Any) -> dict[str, str]:
        # Validation is slow to import, and few housekeepers ever need it.
        from firmq.shared.features.bulk.amending import Amendments
        from firmq.shared.submission.type_cache import TypeCache

        types = TypeCache(TaskTypes(scripts.redis), http_task_policy=settings.http_task_policy())
        return Amendments(bulk_actions, types, Redaction(())).stored(ids, patch)

    return [Bulk(bulk_actions, amend=amend)]


FEATURE = Feature(jobs=_jobs)
