"""outage: sends an alert when Redis does not answer or takes no writes, which no state in Redis can show.

Runs on every instance; the one that led when Redis last answered sends, and remembers in memory which alerts it sent.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from datetime import timedelta

from firmq.shared.conditions.conditions import raised
from firmq.shared.features.alerts.settings import AlertSettings
from firmq.shared.features.alerts.standing import Standing
from firmq.shared.features.alerts.store import Message
from firmq.shared.redis.client import text
from firmq.shared.stores.locks import HeldLock, unanswered
from firmq.worker.feature import Services
from firmq.worker.features.alerts.channels import Channel, SendingFailed
from firmq.worker.housekeeping.locking import Leadership
from firmq.worker.housekeeping.registry import RunResult

log = logging.getLogger(__name__)


class Outage:
    """Pings Redis, and alerts while it does not answer."""

    name = "outage"

    def __init__(
        self,
        services: Services,
        leadership: Leadership,
        channels: Sequence[Channel],
    ) -> None:
        settings, place = AlertSettings.of(services.settings), services.place
        self.redis = services.scripts.redis
        self.leadership = leadership
        self.channels = channels
        self.instance = services.settings.instance_id
        self.patience = settings.alert_after
        self.interval = timedelta(seconds=settings.housekeeper_alerts_interval)
        self.of = "Redis" if place is None else f"The Redis of {place.label}"
        self.effect = "No task is accepted, and none is started."
        if place is not None:
            self.effect = f"The tasks of this {place.stores.noun} wait; other {place.stores.noun}s continue."
        self.led = False
        self.since: float | None = None
        self.notified: list[Channel] = []
        self.alert = self._unreachable()

    def run(self, held: HeldLock) -> RunResult:
        """Raises the driver's error while Redis does not answer."""
        try:
            role = text(self.redis.role()[0])
        except unanswered():
            self._away(self._unreachable())
            raise
        if role == "slave":
            self._away(self._read_only())
            return RunResult()
        self.since, self.led = None, self.leadership.leads()
        self.notified = [channel for channel in self.notified if not self._send(channel, over=True)]
        return RunResult()

    def _away(self, alert: Standing) -> None:
        if not self.notified:  # its end is sent for the alert that was sent
            self.alert = alert
        now = time.monotonic()
        self.since = self.since if self.since is not None else now
        if self.led and now - self.since >= self.patience:
            waiting = [channel for channel in self.channels if channel not in self.notified]
            self.notified += [channel for channel in waiting if self._send(channel, over=False)]

    def _unreachable(self) -> Standing:
        title = f"{self.of} does not answer housekeeper {self.instance}"
        advice = f"{self.effect} Check Redis, its machine and the network."
        return Standing.of(raised("FirmqRedisUnreachable", title, advice))

    def _read_only(self) -> Standing:
        title = f"{self.of} takes no writes of housekeeper {self.instance}: it is a replica"
        return Standing.of(raised("FirmqRedisReadOnly", title, f"{self.effect} Point its address at the primary."))

    def _send(self, channel: Channel, over: bool) -> bool:
        message = Message.new(channel.name, *(((), (self.alert,)) if over else ((self.alert,), ())))
        try:
            channel.send(message)
        except SendingFailed as error:
            log.warning("the outage of Redis could not be sent by %s: %s", channel.name, error)
            return False
        return True
