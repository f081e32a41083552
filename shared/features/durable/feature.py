"""The settings of durable functions, and the names that their handlers import from `firmq`."""

from __future__ import annotations

from firmq.shared.registry import Feature

_NAMES = (
    *("step", "stable_id", "stable_now", "stable_random", "resumable", "continue_as_new"),
    *("sleep", "sleep_until", "wait_for", "wait_for_async"),
    *("Children", "start_children", "gather", "emit"),
)

FEATURE = Feature(
    settings="firmq.shared.features.durable.settings:DurableSettings",
    public=dict.fromkeys(_NAMES, "firmq.worker.features.durable.public"),
)
