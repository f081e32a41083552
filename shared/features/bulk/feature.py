"""The keys and the job of bulk actions, and their events in the timeline."""

from __future__ import annotations

from firmq.shared.features.bulk.keys import BulkKeys
from firmq.shared.registry import Feature

FEATURE = Feature(keys=BulkKeys, jobs=("bulk",), timeline="firmq.shared.features.bulk.timeline:events")
