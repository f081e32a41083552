"""Pauses of queues and task types: claims take none of their tasks until they are resumed.

A pause can have an end, at which the housekeeping job `unlock` resumes the queue or the type.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING

from firmq.shared.domain.clock import instant
from firmq.shared.domain.decode import UNREADABLE, moment
from firmq.shared.redis.client import raw, text, translated

if TYPE_CHECKING:
    from firmq.shared.redis.scripts import Scripts

Pause = Mapping[str, str]
"""Why something is paused, by whom, since when (`at`), and until when where it has an end (`until`)."""
_TYPE = "type:"


def of_type(task_type: str) -> str:
    """Returns the name under which a task type is paused; a queue has its own."""
    return f"{_TYPE}{task_type}"


def read_pause(stored: bytes) -> Pause:
    """Returns a stored pause; a corrupt entry pauses too."""
    try:
        about = {name: value for name, value in json.loads(stored).items() if isinstance(value, str)}
        for name in ("at", "until"):
            moment(about.get(name, about["at"]))
    except UNREADABLE:
        return {"reason": "the stored reason is corrupt"}
    return about


class Pauses:
    """The paused queues and types."""

    def __init__(self, scripts: Scripts) -> None:
        self.scripts = scripts

    def pause(self, name: str, reason: str, by: str = "", *, until: datetime | None = None) -> None:
        """Stops claims until it is resumed; running tasks continue. Raises ValueError for an `until` in the past."""
        with translated():
            now = instant(self.scripts.now_us())
            if until is not None and until <= now:
                raise ValueError("the end of the pause has passed: choose a later time, or none")
            about = {"reason": reason, "by": by, "at": now.isoformat()}
            end = {"until": until.isoformat()} if until else {}
            self.scripts.call_answered("pause", name, json.dumps(about | end))

    def resume(self, name: str) -> None:
        """Allows claims again."""
        with translated():
            self.scripts.call_answered("pause", name, "")

    def types(self) -> dict[str, Pause]:
        """Returns the paused types."""
        found = self._all()
        return {name.removeprefix(_TYPE): read_pause(each) for name, each in found.items() if name.startswith(_TYPE)}

    def end_due(self) -> list[str]:
        """Ends pauses whose time is over; returns the names."""
        paused = self._all()
        if not paused:
            return []
        with translated():
            now = instant(self.scripts.now_us())
            due = [(name, each) for name, each in paused.items() if _has_ended(read_pause(each), now)]
            return [name for name, each in due if self.scripts.call("pause", name, "", each)]

    def _all(self) -> dict[str, bytes]:
        key = self.scripts.keys.PAUSED
        with self.scripts.quarantining({key: "hash"}):
            return {text(name): raw(each) for name, each in self.scripts.redis.hgetall(key).items()}


def _has_ended(pause: Pause, now: datetime) -> bool:
    return "until" in pause and moment(pause["until"]) <= now
