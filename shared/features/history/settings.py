"""The history of ended tasks in a database."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Annotated

from pydantic import AfterValidator

from firmq.shared.config.groups.group import Group, at
from firmq.shared.config.values import DatabaseUrl, Seconds
from firmq.shared.domain.task import TaskState


def _supported(url: str) -> str:
    if url and not re.match(r"(sqlite|postgresql(\+\w+)?):", url):
        raise ValueError("must begin with postgresql+psycopg:// or sqlite:///, as a URL of SQLAlchemy does")
    return url


class HistorySettings(Group):
    """The history of ended tasks in a database."""

    housekeeper_history_interval: Seconds = at(
        "housekeeper.history.interval", 1, "Pause between runs that store ended tasks in the history.", gt=0
    )
    history_url: Annotated[DatabaseUrl, AfterValidator(_supported)] = at(
        "history.url",
        "",
        "Database of the history, as a SQLAlchemy URL: postgresql+psycopg://... or sqlite:///...; set the same for "
        "housekeepers, gateways and dashboards. Empty: no history; ended tasks are removed after their retention.",
    )
    history_retention_completed: Seconds = at(
        "history.retention.completed", 30 * 86400, "How long the history keeps completed tasks."
    )
    history_retention_failed: Seconds = at(
        "history.retention.failed", 365 * 86400, "How long the history keeps tasks that ended as dead letters."
    )
    history_retention_cancelled: Seconds = at(
        "history.retention.cancelled", 30 * 86400, "How long the history keeps cancelled tasks."
    )
    history_retention_expired: Seconds = at(
        "history.retention.expired", 30 * 86400, "How long the history keeps expired tasks."
    )

    def history_retention(self) -> dict[TaskState, timedelta]:
        """Returns how long the history keeps an ended task, by its final state."""
        ended = (state for state in TaskState if state.ended)
        return {state: timedelta(seconds=getattr(self, f"history_retention_{state}")) for state in ended}
