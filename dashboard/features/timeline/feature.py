"""The page of the timeline."""

from __future__ import annotations

from firmq.dashboard.context import PageContext
from firmq.dashboard.feature import Feature
from firmq.dashboard.features.timeline.pages import blueprint
from firmq.shared.features.timeline.incident import Incidents


def _open(context: PageContext) -> Incidents:
    return Incidents(context.stores.tasks.scripts, context.stores.workers)


FEATURE = Feature(name="timeline", blueprint=blueprint, open=_open, navigation=(("/audit", "/timeline", "Timeline"),))
