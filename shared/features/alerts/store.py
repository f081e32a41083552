"""The stored state of alerts, and their unsent messages."""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from firmq.shared.domain.decode import UNREADABLE, as_declared
from firmq.shared.features.alerts.keys import AlertKeys
from firmq.shared.features.alerts.standing import Standing
from firmq.shared.redis.client import raw, text

if TYPE_CHECKING:
    from firmq.shared.domain.lock import FencingToken
    from firmq.shared.redis.scripts import Scripts


LOGGED = 1000
"""Entries of the log of alerts."""
Record = TypeVar("Record", "Standing", "Message", "LoggedAlert")


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

    @classmethod
    def new(cls, channel: str, fired: Sequence[Standing], resolved: Sequence[Standing], made_at: int = 0) -> Message:
        """Returns a message with an id of its own."""
        id_ = secrets.token_hex(16)
        return cls(id=id_, channel=channel, fired=tuple(fired), resolved=tuple(resolved), made_at=made_at)


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
        self.keys = AlertKeys.beside(scripts.keys)

    def standings(self) -> dict[str, Standing]:
        """Returns the stored states by the keys of the alerts; corrupt records are left out."""
        entries = self._read(self.keys.ALERTS)
        return {key: found for key, entry in entries.items() if (found := _loaded(Standing, entry))}

    def messages(self) -> list[Message]:
        """Returns the messages to send, the oldest first; corrupt ones are left out."""
        entries = self._read(self.keys.ALERT_MESSAGES).values()
        found = [each for entry in entries if (each := _loaded(Message, entry))]
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
        key = self.keys.ALERT_LOG
        with self.scripts.quarantining({key: "zset"}):
            entries = self.scripts.redis.zrange(key, -LOGGED, -1)
        return [found for each in entries if isinstance(each, bytes | str) and (found := _loaded(LoggedAlert, each))]

    def _read(self, key: str) -> dict[str, bytes]:
        with self.scripts.quarantining({key: "hash"}):
            return {text(name): raw(entry) for name, entry in self.scripts.redis.hgetall(key).items()}


def _json(record: Standing | Message | None) -> str:
    return json.dumps(asdict(record)) if record else ""


def _loaded(kind: type[Record], entry: bytes | str) -> Record | None:
    """Returns a stored record; None for a corrupt one."""
    try:
        about = json.loads(entry)
        if kind is Message:
            about |= {name: tuple(_as(Standing, each) for each in about[name]) for name in ("fired", "resolved")}
        return _as(kind, about)
    except UNREADABLE:
        return None


def _as(kind: type[Record], about: dict[str, Any]) -> Record:
    return as_declared(kind(**about))
