"""alerts: judges the system by the conditions, on the leader only, and sends new alerts.

Alerts are recorded together with their messages, which are then sent and recorded as sent. A leader that
dies in between is followed by one that sends the rest: a message that was sent and not recorded is sent again, with the
same id.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta

from firmq.shared.conditions.conditions import Alert, alerts
from firmq.shared.conditions.observation import Observation, Observer
from firmq.shared.domain.clock import instant_us, to_us
from firmq.shared.failpoints import failpoint
from firmq.shared.features.alerts.quiet_hours import QuietHours
from firmq.shared.features.alerts.settings import AlertSettings
from firmq.shared.features.alerts.standing import Outcome, judge
from firmq.shared.features.alerts.store import AlertStore, LoggedAlert, Message
from firmq.shared.stores.locks import HeldLock
from firmq.worker.feature import Services
from firmq.worker.features.alerts.channels import Channel, SendingFailed
from firmq.worker.housekeeping.registry import RunResult

log = logging.getLogger(__name__)

FIRST_PAUSE, LONGEST_PAUSE = timedelta(seconds=10), timedelta(minutes=10)
GIVE_UP = timedelta(days=1)
MOST = 200
"""Alerts that are kept apart; of more, the least severe are left out."""


class Alerts:
    """Evaluates the conditions and delivers messages."""

    name = "alerts"

    def __init__(self, services: Services, channels: Sequence[Channel]) -> None:
        """With several stores, alerts name theirs, and their links lead to its pages."""
        settings = AlertSettings.of(services.settings)
        self.observer = Observer(services.scripts, services.settings)
        self.store = AlertStore(services.scripts)
        self.channels = channels
        self.place = services.place
        self.patience = timedelta(seconds=settings.alert_after)
        self.repeat = timedelta(seconds=settings.alert_repeat)
        self.quiet_hours = QuietHours.read(settings.alert_quiet_hours)
        self.interval = timedelta(seconds=settings.housekeeper_alerts_interval)

    def run(self, held: HeldLock) -> RunResult:
        now = self.observer.observe()
        outcome, now_us = self._judge(now), instant_us(now.at)
        held.check()
        if outcome.changes:
            new = {each.id: each for each in self._messages(outcome, now_us)}
            self.store.write(held.fencing_token, outcome.changes, new, _entries(outcome, now_us))
            _log(outcome)
            if new:
                failpoint("alerts.noted")
        self._send(held, now_us)
        return RunResult(len(outcome.fired) + len(outcome.resolved))

    def _judge(self, now: Observation) -> Outcome:
        quiet = self.quiet_hours is not None and self.quiet_hours.cover(now.at)
        found = [self._placed(each) for each in alerts(now)[:MOST]]
        return judge(found, self.store.standings(), instant_us(now.at), self.patience, quiet, self.repeat)

    def _placed(self, alert: Alert) -> Alert:
        if self.place is None:
            return alert
        title = f"{self.place.label.capitalize()}: {alert.title}"
        return replace(alert, title=title, link=self.place.page(alert.link or "/"))

    def _messages(self, outcome: Outcome, now_us: int) -> list[Message]:
        """Returns a message for each channel about all that is new, and about what lasts unless one waits there."""
        behind = {each.channel for each in self.store.messages()} if outcome.repeated else set()
        messages = [
            Message.new(
                each.name,
                outcome.fired if each.name in behind else [*outcome.fired, *outcome.repeated],
                outcome.resolved,
                now_us,
            )
            for each in self.channels
        ]
        return [each for each in messages if each.fired or each.resolved]

    def _send(self, held: HeldLock, now_us: int) -> None:
        """Sends the messages of each channel in their order; after a failure the rest of it waits for another try."""
        channels, blocked = {channel.name: channel for channel in self.channels}, set()
        for message in self.store.messages():
            held.check()
            channel = channels.get(message.channel)
            if channel is None:  # it is no longer configured
                self.store.write(held.fencing_token, messages={message.id: None})
            elif channel.name not in blocked and (
                message.next_try > now_us or not self._sent(channel, message, held, now_us)
            ):
                blocked.add(channel.name)

    def _sent(self, channel: Channel, message: Message, held: HeldLock, now_us: int) -> bool:
        """Tries to send a message; returns False when it is to be tried again."""
        try:
            channel.send(message)
        except SendingFailed as error:
            again = self._after_failure(message, now_us)
            log.log(
                logging.WARNING if again else logging.ERROR,
                "alerts could not be sent by %s: %s; %s",
                channel.name,
                error,
                "will be tried again" if again else "given up after a day",
            )
            self.store.write(held.fencing_token, messages={message.id: again})
            return again is None
        failpoint("alerts.sent")
        self.store.write(held.fencing_token, messages={message.id: None})
        return True

    def _after_failure(self, message: Message, now_us: int) -> Message | None:
        if now_us - message.made_at > to_us(GIVE_UP):
            return None
        pause = min(to_us(FIRST_PAUSE) * 2 ** min(message.failures, 10), to_us(LONGEST_PAUSE))
        return replace(message, failures=message.failures + 1, next_try=now_us + pause)


def _entries(outcome: Outcome, now_us: int) -> list[LoggedAlert]:
    """Returns the text for the log."""
    return [
        LoggedAlert(name=each.name, title=each.title, advice=each.advice, link=each.link, resolved=is_over, at=now_us)
        for is_over, found in ((False, outcome.fired), (True, outcome.resolved))
        for each in found
    ]


def _log(outcome: Outcome) -> None:
    for each in outcome.fired:
        log.warning("alert %s: %s", each.name, each.title, extra={"alert": each.name, "level_of_alert": each.level})
    for each in outcome.resolved:
        log.info("alert %s resolved: %s", each.name, each.title, extra={"alert": each.name})
