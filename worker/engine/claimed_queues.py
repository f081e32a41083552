"""The queues that claims name: some always, the others while they have tasks."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from firmq.shared.domain.queue_selection import QUEUE_NAME

if TYPE_CHECKING:
    from firmq.shared.domain.queue_selection import QueueSelection

LOOK, IDLE_LOOK = 1.0, 15.0
"""Seconds after which a claim also reads the register of queues, of a busy and of an idle worker.

An idle worker discovers queues by notifications, by wake-ups for those that it knows, and by its patterns.
"""
ACTIVE = 8.0
"""Seconds for which claims name a queue after it was seen with tasks."""


class ClaimedQueues:
    """Which queues claims name, and for which wake-ups the worker waits.

    A claim's cost grows with the queues that it names, so one that is empty and that no setting names is left out; the
    claim script and direct dispatch find its first task by the patterns. All of it is used by the engine's thread.
    """

    def __init__(self, selection: QueueSelection, monotonic: Callable[[], float] = time.monotonic) -> None:
        self.selection = selection
        self.monotonic = monotonic
        self.known = selection.names
        """All queues that it takes from, as far as it knows."""
        self.active = selection.names
        """The queues that claims name."""
        self.changes = 0
        """How often one of them has changed."""
        self._seen: dict[str, float] = {}
        self._looked_at = float("-inf")
        self._was_idle = False

    def look_due(self, idle: bool = False) -> bool:
        """Returns whether to read the register of queues; a worker that has become idle reads it once more at once."""
        pause = IDLE_LOOK if idle and self._was_idle else LOOK
        due = bool(self.selection.patterns) and self.monotonic() >= self._looked_at + pause
        self._was_idle = idle if due else self._was_idle
        return due

    def look_soon(self) -> None:
        """Makes the next claim read the register of queues."""
        self._looked_at = float("-inf")

    def learn(self, reply: Sequence[Any]) -> None:
        """Learns from the answer of `queues_look.lua` which queues there are, and which of them have tasks."""
        now = self.monotonic()
        self._looked_at = now
        names, with_tasks = ({name.decode(errors="replace") for name in part} for part in reply)
        others = [name for name in names if self.selection.takes(name)]
        self._seen.update(dict.fromkeys((name for name in with_tasks if self._is_other(name)), now))
        self._seen = {name: at for name, at in self._seen.items() if now - at < ACTIVE}
        self._set({*self.selection.names, *others}, {*self.selection.names, *self._seen})

    def touch(self, name: str) -> None:
        """Notes that a queue has tasks: a wake-up came, or a claim brought one."""
        if name in self._seen:
            self._seen[name] = self.monotonic()
        elif self._is_other(name):
            self._seen[name] = self.monotonic()
            self._set({*self.known, name}, {*self.active, name})

    def _is_other(self, name: str) -> bool:
        """Returns whether it takes from a queue that its claims need not name."""
        named = name in self.selection.names or not QUEUE_NAME.fullmatch(name)
        return not named and self.selection.takes(name)

    def _set(self, known: set[str], active: set[str]) -> None:
        if known != set(self.known) or active != set(self.active):
            self.known, self.active = self.selection.in_order(known), self.selection.in_order(active)
            self.changes += 1
