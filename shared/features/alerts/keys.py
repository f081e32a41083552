"""The keys of alerts."""

from __future__ import annotations

from firmq.shared.redis.keys import Key, KeySpace


class AlertKeys(KeySpace):
    """The keys of alerts."""

    ALERTS = Key("firmq:alerts", "hash")
    """hash, owner: alerts_write; until the alert is over. The problem, its beginning, and the sent level (JSON)."""

    ALERT_MESSAGES = Key("firmq:alerts:messages", "hash")
    """hash, owner: alerts_write; until it is sent, at most a day. Messages about alerts, by their ids (JSON)."""

    ALERT_LOG = Key("firmq:alerts:log", "zset")
    """zset, owner: alerts_write; the last 1,000. Alerts that were raised and resolved (JSON), by when."""
