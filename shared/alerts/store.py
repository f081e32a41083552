"""The stored state of alerts, and the messages about them that are still to be sent."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from firmq.shared.alerts.standing import Standing
from firmq.shared.domain.decode import UNREADABLE, as_declared
from firmq.shared.redis.client import raw, text

if TYPE_CHECKING:
    from firmq.shared.domain.lock import FencingToken
    from firmq.shared.redis.scripts import Scripts


LOGGED = 1000
"""Entries of the log of alerts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """A message for one channel; times are in microseconds. `failures` counts tries to send it."""

    id: str
    channel: str
    fired: tuple[Standing, ...]
    resolved: tuple[Standing, ...]
    made_at: int
    failures: int = 0
    next_try: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggedAlert:
    """An alert that was raised or resolved, at this time (µs)."""

    name: str
    title: str
    advice: str
    link: str
    resolved: bool
    at: int


class AlertStore:
    """The alerts in Redis. All changes are made under the fencing token of the leader."""

    def __init__(self, scripts: Scripts) -> None:
        self.scripts = scripts

    def standings(self) -> dict[str, Standing]:
        """Returns what is remembered, by the keys of the alerts; corrupt records are left out."""
        found = {key: _standing(entry) for key, entry in self._read(self.scripts.keys.ALERTS).items()}
        return {key: each for key, each in found.items() if each}

    def messages(self) -> list[Message]:
        """Returns the messages to send, the oldest first; corrupt ones are left out."""
        found = filter(None, map(_message, self._read(self.scripts.keys.ALERT_MESSAGES).values()))
        return sorted(found, key=lambda message: (message.made_at, message.id))

    def write(
        self,
        fencing_token: FencingToken,
        alerts: Mapping[str, Standing | None] | None = None,
        messages: Mapping[str, Message | None] | None = None,
        log: Sequence[LoggedAlert] = (),
    ) -> None:
        """Stores or removes (None) records and messages, and adds to the log, in one step. Raises LockLost."""
        given = {
            "alerts": {key: _json(each) for key, each in (alerts or {}).items()},
            "messages": {key: _json(each) for key, each in (messages or {}).items()},
            "log": [json.dumps(asdict(each)) for each in log],
        }
        self.scripts.call("alerts_write", fencing_token.lock, fencing_token.token, json.dumps(given))

    def logged(self) -> list[LoggedAlert]:
        """Returns the log, the oldest first; corrupt entries are left out."""
        key = self.scripts.keys.ALERT_LOG
        with self.scripts.quarantining({key: "zset"}):
            entries = self.scripts.redis.zrange(key, -LOGGED, -1)
        return [found for each in entries if isinstance(each, bytes | str) and (found := _logged(each))]

    def _read(self, key: str) -> dict[str, bytes]:
        with self.scripts.quarantining({key: "hash"}):
            return {text(name): raw(entry) for name, entry in self.scripts.redis.hgetall(key).items()}


def _json(record: Standing | Message | None) -> str:
    return json.dumps(asdict(record)) if record else ""


def _logged(entry: bytes | str) -> LoggedAlert | None:
    try:
        return as_declared(LoggedAlert(**json.loads(entry)))
    except UNREADABLE:
        return None


def _standing(entry: bytes) -> Standing | None:
    try:
        return as_declared(Standing(**json.loads(entry)))
    except UNREADABLE:
        return None


def _message(entry: bytes) -> Message | None:
    try:
        about = json.loads(entry)
        lists = {each: tuple(as_declared(Standing(**one)) for one in about[each]) for each in ("fired", "resolved")}
        return as_declared(Message(**{**about, **lists}))
    except UNREADABLE:
        return None
