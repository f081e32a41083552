"""The events of alerts in the timeline."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from firmq.shared.domain.clock import instant
from firmq.shared.domain.timeline import Event, Source
from firmq.shared.features.alerts.store import LOGGED, AlertStore

if TYPE_CHECKING:
    from firmq.shared.redis.scripts import Scripts


def events(scripts: Scripts) -> Source:
    """Returns the source of these events."""

    def read(since: datetime, until: datetime) -> tuple[Sequence[Event], str]:
        logged = AlertStore(scripts).logged()
        found = [
            Event(
                at=instant(each.at),
                kind="alert",
                title=f"Alert resolved: {each.title}" if each.resolved else f"Alert: {each.title}",
                detail="" if each.resolved else each.advice,
                link=each.link,
            )
            for each in logged
        ]
        is_cut = len(logged) >= LOGGED and found[0].at > since
        return found, f"Only the last {LOGGED} changes of alerts are on record." if is_cut else ""

    return Source(read)
