"""The page of statistics, and the statistics on the pages of types."""

from __future__ import annotations

from firmq.dashboard.feature import Feature
from firmq.dashboard.features.history.pages import blueprint, statistics
from firmq.shared.features.history.records import history_of

FEATURE = Feature(
    name="history",
    blueprint=blueprint,
    open=lambda context: history_of(context.stores.all_tasks),
    navigation=(("/types", "/analytics", "Analytics"),),
    slots={
        "type.report": "history/report.html",
        "type.without_report": "history/type_hint.html",
        "types.without_report": "history/types_hint.html",
    },
    statistics=statistics,
)
