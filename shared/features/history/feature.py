"""The settings and the job of the history, and its entries in other parts."""

from __future__ import annotations

from firmq.shared.registry import Feature

FEATURE = Feature(
    jobs=("history",),
    settings="firmq.shared.features.history.settings:HistorySettings",
    records="firmq.shared.features.history.records:with_history",
    checks="firmq.shared.features.history.lag:check_history",
    conditions="firmq.shared.features.history.lag:CONDITIONS",
    alerts="firmq.shared.features.history.lag:alerts",
)
