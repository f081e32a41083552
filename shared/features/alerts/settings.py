"""Alerts: when they fire, and where they are sent."""

from __future__ import annotations

from typing import Annotated

from firmq.shared.config.groups.group import Group, at
from firmq.shared.config.groups.http_calls import HttpCallSettings
from firmq.shared.config.values import Names, Seconds, valid
from firmq.shared.domain.url import split_url
from firmq.shared.features.alerts.quiet_hours import QuietHours


def _mail_server(url: str) -> None:
    if not url:
        return
    parts = split_url(url)
    more = parts.path.strip("/") or parts.query or parts.fragment
    if parts.scheme not in ("smtp", "smtps") or not parts.hostname or more:
        raise ValueError("must look like smtp://user:secret@host:587 or smtps://host:465")
    if parts.port == 0:
        raise ValueError("must have no port 0")


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
    smtp_url: Annotated[str, valid(_mail_server)] = at(
        "alerts.smtp_url",
        "",
        "Mail server for alerts: smtp://user:secret@host:587 (STARTTLS where the server offers it, always with a "
        "password) or smtps://host:465.",
    )
    alert_quiet_hours: Annotated[str, valid(QuietHours.read)] = at(
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

    def check(self) -> None:
        if bool(self.alert_email_to) != bool(self.smtp_url):
            raise ValueError("ALERT_EMAIL_TO and SMTP_URL are needed together: set both, or neither")
        if self.alert_webhook_url:
            try:
                HttpCallSettings.of(self).egress_policy().read(self.alert_webhook_url)
            except ValueError as error:
                raise ValueError(f"ALERT_WEBHOOK_URL: {error}") from None
