"""Thresholds of the conditions for alerts."""

from __future__ import annotations

from firmq.shared.config.groups.group import Group, at
from firmq.shared.config.values import Seconds


class ConditionSettings(Group):
    """Thresholds of the conditions for alerts."""

    alert_waiting_time: Seconds = at(
        "alerts.waiting_time",
        300,
        "Wait of the oldest task of a queue, or of a type that no live worker has, above which an alert is sent.",
        gt=0,
    )
    alert_dead_letters: int = at(
        "alerts.dead_letters",
        1,
        "Number of dead letters of one type and cause within ten minutes from which an alert is sent.",
        ge=1,
    )
    alert_schedule_failures: int = at(
        "alerts.schedule_failures",
        3,
        "Number of failed runs of a schedule in a row from which an alert is sent.",
        ge=1,
        le=30,
    )
    alert_redis_memory: float = at(
        "alerts.redis_memory",
        0.75,
        "Share of maxmemory in use above which an alert is sent; above 0.9 its level is danger.",
        gt=0,
        le=1,
    )
