"""Alerts: when they fire, and where they are sent."""

from __future__ import annotations

from firmq.shared.config.groups.group import Group, at
from firmq.shared.config.values import Names, QuietTime, Seconds, SmtpUrl


class AlertSettings(Group):
    """Alerts: when they fire, and where they are sent."""

    housekeeper_alerts_interval: Seconds = at(
        "housekeeper.alerts.interval", 10, "Pause between evaluations of the alert rules by the leader.", gt=0
    )
    alert_webhook_url: str = at(
        "alerts.webhook_url",
        "",
        "Incoming webhook of Slack, or of a chat that accepts the same JSON, to which alerts are sent; WEBHOOK_HOSTS, "
        "WEBHOOK_PORTS and WEBHOOK_ALLOW apply to it.",
    )
    alert_email_to: Names = at("alerts.email_to", (), "Email addresses to which alerts are sent.")
    alert_email_from: str = at(
        "alerts.email_from", "", "Sender address of these emails; empty: firmq at this machine's host name."
    )
    smtp_url: SmtpUrl = at(
        "alerts.smtp_url",
        "",
        "Mail server for alerts: smtp://user:secret@host:587 (STARTTLS where the server offers it, always with a "
        "password) or smtps://host:465.",
    )
    alert_quiet_hours: QuietTime = at(
        "alerts.quiet_hours",
        "",
        "Part of each day in which only alerts of the level danger are sent, such as 22:00-07:00 Europe/Berlin; "
        "warnings are sent afterwards if they still hold.",
    )
    alert_after: Seconds = at(
        "alerts.after",
        60,
        "How long a condition must hold before its alert is sent, and be absent before it is reported as resolved.",
    )
    alert_repeat: Seconds = at(
        "alerts.repeat", 0, "Time after which an alert whose condition still holds is sent again; 0: never."
    )
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
