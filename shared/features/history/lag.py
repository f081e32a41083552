"""The finding of a late history, in the doctor and the overview."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from firmq.shared.conditions.conditions import Alert, Condition, Level, raised
from firmq.shared.conditions.findings import Finding, doubtful, fine
from firmq.shared.domain.duration import duration
from firmq.shared.features.history.settings import HistorySettings
from firmq.shared.features.history.unarchived import BEHIND, feed
from firmq.shared.redis.scripts import Scripts

if TYPE_CHECKING:
    from redis import Redis

    from firmq.shared.conditions.observation import Observation
    from firmq.shared.config.settings import Settings

CONDITIONS = (Condition("FirmqHistoryLate", Level.WARNING, "/analytics", over=BEHIND.total_seconds(), check="history"),)


def check_history(redis: Redis, settings: Settings, now: Observation) -> list[Finding]:
    """Returns whether ended tasks are stored in the history in time; nothing where there is none."""
    state = feed(Scripts(redis))
    if state is None:
        seen, is_set = "HISTORY_URL is set, and no housekeeper stores history", HistorySettings.of(settings).history_url
        return [doubtful("history", seen, "set it for housekeepers too")] if is_set else []
    oldest = f", the oldest for {duration(state.lag)}" if state.waiting else ""
    seen = f"{state.waiting:,} ended tasks wait to be stored{oldest}{state.given_up}"
    if not state.trouble:
        return [fine("history", seen)]
    return [
        doubtful("history", f"{seen}: {state.trouble}", "check the database of HISTORY_URL and the housekeeper's log")
    ]


def alerts(scripts: Scripts) -> Iterator[Alert]:
    """Yields an alert when ended tasks wait too long."""
    state = feed(scripts)
    if state and state.trouble and state.waiting:
        title = f"The history is {duration(state.lag)} behind, with {state.waiting:,} ended tasks to store"
        advice = "Tasks run as usual. Check the database of HISTORY_URL and the housekeeper's log."
        yield raised("FirmqHistoryLate", f"{title}: {state.trouble}{state.given_up}", advice)
