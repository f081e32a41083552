"""The keys and the settings of alerts, and their events in the timeline."""

from __future__ import annotations

from firmq.shared.features.alerts.keys import AlertKeys
from firmq.shared.registry import Feature

FEATURE = Feature(
    keys=AlertKeys,
    settings="firmq.shared.features.alerts.settings:AlertSettings",
    timeline="firmq.shared.features.alerts.timeline:events",
)
