"""The history of ended tasks in a database."""

from __future__ import annotations

from firmq.shared.config.groups.group import Group, at
from firmq.shared.config.values import HistoryUrl, Seconds


class HistorySettings(Group):
    """The history of ended tasks in a database."""

    housekeeper_history_interval: Seconds = at(
        "housekeeper.history.interval", 1, "Pause between runs that store ended tasks in the history.", gt=0
    )
    history_url: HistoryUrl = at(
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
