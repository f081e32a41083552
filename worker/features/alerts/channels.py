"""Channels of alerts: a webhook that Slack and others understand, and email."""

from __future__ import annotations

import asyncio
import json
import smtplib
import socket
import ssl
from collections.abc import Iterator, Sequence
from email.message import EmailMessage
from typing import Protocol
from urllib.parse import unquote, urlsplit

from firmq.shared.conditions.conditions import Level, runbook
from firmq.shared.config.settings import Settings
from firmq.shared.domain.egress_policy import EgressPolicy, NotAllowed
from firmq.shared.domain.sanitize import plain
from firmq.shared.features.alerts.settings import AlertSettings
from firmq.shared.features.alerts.standing import Standing
from firmq.shared.features.alerts.store import Message
from firmq.worker.handlers.pinned_http import Answer, CallFailed, Connection, in_thread

WITHIN = 10.0
"""Seconds for one call of a webhook, and for each answer of a mail server."""
_MOST, _LONGEST = 20, 500
"""Alerts in one message, and characters in one line of it."""


class SendingFailed(Exception):
    """The channel did not take a message; another try may help. The text has no secrets."""


class Channel(Protocol):
    """A way to send messages. `name` is kept with each message."""

    name: str

    def send(self, message: Message) -> None:
        """Sends one message. Raises SendingFailed."""
        ...


def channels_of(settings: Settings) -> list[Channel]:
    """Returns the channels of the settings; none if alerts are not to be sent."""
    channels, about = list[Channel](), AlertSettings.of(settings)
    if about.alert_webhook_url:
        channels.append(WebhookChannel(about.alert_webhook_url, settings.egress_policy(), settings.dashboard_url))
    if about.alert_email_to:
        sender = about.alert_email_from or f"firmq@{socket.gethostname()}"
        channels.append(EmailChannel(about.smtp_url, sender, about.alert_email_to, settings.dashboard_url))
    return channels


class WebhookChannel:
    """An incoming webhook as Slack has it: JSON with a `text`."""

    name = "webhook"

    def __init__(self, url: str, egress_policy: EgressPolicy, dashboard_url: str) -> None:
        self.url = url
        self.egress_policy = egress_policy
        self.dashboard_url = dashboard_url.rstrip("/")

    def send(self, message: Message) -> None:
        body = json.dumps({"text": "\n".join(self._lines(message))}).encode()
        headers = {"Content-Type": "application/json", "User-Agent": "firmq-alerts", "Webhook-Id": message.id}
        connection = Connection(self.egress_policy)

        def call() -> Answer:
            return connection.send(self.url, "POST", body, headers)

        try:
            answer = asyncio.run(in_thread(connection, call, WITHIN))
        except (CallFailed, NotAllowed) as error:
            raise SendingFailed(f"ALERT_WEBHOOK_URL {error}") from None
        if not 200 <= answer.status < 300:
            raise SendingFailed(f"ALERT_WEBHOOK_URL answered {answer.status}")

    def _lines(self, message: Message) -> Iterator[str]:
        for each in message.fired[:_MOST]:
            sign = ":red_circle:" if each.level == Level.DANGER else ":warning:"
            yield f"{sign} *{_escaped(each.title)}*"
            yield f"{_escaped(each.advice)} {self._links(each)}".strip()
        for each in message.resolved[:_MOST]:
            yield f":white_check_mark: Resolved: {_escaped(each.title)}"
        yield from _rest(message)

    def _links(self, alert: Standing) -> str:
        page = f"<{self.dashboard_url}{alert.link or '/'}|Dashboard>, " if self.dashboard_url else ""
        return f"({page}runbook: {runbook(alert.name)})"


class EmailChannel:
    """Email through one mail server."""

    name = "email"

    def __init__(self, url: str, sender: str, recipients: Sequence[str], dashboard_url: str) -> None:
        self.url = urlsplit(url)
        self.sender = sender
        self.recipients = recipients
        self.dashboard_url = dashboard_url.rstrip("/")

    def send(self, message: Message) -> None:
        try:
            with self._connected() as server:
                server.send_message(self._email(message))
        except (smtplib.SMTPException, OSError, ValueError) as error:  # ValueError: a password that is not ASCII
            raise SendingFailed(f"SMTP_URL did not accept it: {type(error).__name__}: {error}") from None

    def _connected(self) -> smtplib.SMTP:
        """Returns a connection, encrypted where the server offers it, and signed in if the address has a user."""
        host, port, context = self.url.hostname or "", self.url.port, ssl.create_default_context()
        if self.url.scheme == "smtps":
            server: smtplib.SMTP = smtplib.SMTP_SSL(host, port or 465, timeout=WITHIN, context=context)
        else:
            server = smtplib.SMTP(host, port or 25, timeout=WITHIN)
            server.ehlo()
            if server.has_extn("starttls"):
                server.starttls(context=context)
            elif self.url.username:
                server.close()
                raise smtplib.SMTPException("it offers no STARTTLS, and a password is not sent in the clear")
        if self.url.username:
            server.login(unquote(self.url.username), unquote(self.url.password or ""))
        return server

    def _email(self, message: Message) -> EmailMessage:
        email = EmailMessage()
        email["From"], email["To"] = self.sender, ", ".join(self.recipients)
        email["Subject"] = _subject(message)
        email["Message-ID"] = f"<{message.id}@{self.sender.rpartition('@')[2]}>"
        email["Auto-Submitted"] = "auto-generated"
        email.set_content("\n".join(self._lines(message)))
        return email

    def _lines(self, message: Message) -> Iterator[str]:
        for each in message.fired[:_MOST]:
            yield f"{each.level.upper()}: {_cut(each.title)}"
            yield _cut(each.advice)
            if self.dashboard_url:
                yield f"Dashboard: {self.dashboard_url}{each.link or '/'}"
            yield f"Runbook: {runbook(each.name)}"
            yield ""
        for each in message.resolved[:_MOST]:
            yield f"Resolved: {_cut(each.title)}"
        yield from _rest(message)


def _subject(message: Message) -> str:
    first = (*message.fired, *message.resolved)[0]
    more = len(message.fired) + len(message.resolved) - 1
    what = "" if message.fired else "Resolved: "
    return f"[firmq] {what}{_cut(first.title)[:150]}" + (f" and {more} more" if more else "")


def _rest(message: Message) -> Iterator[str]:
    left = max(0, len(message.fired) - _MOST) + max(0, len(message.resolved) - _MOST)
    if left:
        yield f"… and {left} more: see the dashboard"


def _cut(text: str) -> str:
    """Returns a text of tasks in one line, without characters that could end a header."""
    return plain(" ".join(text.split()))[:_LONGEST]


def _escaped(text: str) -> str:
    """Returns a text without Slack's markup."""
    return _cut(text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
