"""The relay of an outbox."""

from __future__ import annotations

from firmq.shared.config.groups.group import Group, at
from firmq.shared.config.values import DatabaseUrl, Port


class OutboxSettings(Group):
    """The relay of an outbox."""

    outbox_database: DatabaseUrl = at(
        "outbox.database", "", "Database with the outbox that a relay sends, as a URL of SQLAlchemy."
    )
    outbox_metrics_port: Port = at("outbox.metrics_port", 9102, "Port of a relay's metrics and health; 0: any free.")
