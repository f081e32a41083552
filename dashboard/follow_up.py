"""Follows what bulk actions sent back to its end, a bounded part every second."""

from __future__ import annotations

import time
from collections import Counter, deque
from dataclasses import dataclass, field

from shared.stores.bulk_actions import BulkActions

CALLS = 20
AT_ONCE = 100
"""Tasks that one call looks at, and calls a second for all actions together: 100,000 tasks take less than a minute."""
REST = 5.0
"""Seconds until tasks are looked at again none of which had ended."""


@dataclass(slots=True)
class Pass:
    """One pass over the tasks of an action that have not ended."""

    cursor: str = "0"
    ended: int = 0
    waiting: Counter[str] = field(default_factory=Counter)
    not_before: float = 0.0
    looked_at: float = 0.0


class FollowUp:
    """Several processes may do this at the same time: each task is counted once."""

    def __init__(self, bulks: BulkActions) -> None:
        self.bulks = bulks
        self.passes: dict[str, Pass] = {}

    def step(self) -> None:
        """Looks at the next tasks of every action that is followed."""
        followed = self.bulks.followed()
        self.passes = {each: self.passes.get(each) or Pass() for each in followed}
        now = time.monotonic()
        due = deque(each for each in sorted(followed, key=self._followed) if self.passes[each].not_before <= now)
        for _ in range(CALLS):
            if not due:
                return
            action_id = due.popleft()
            if not self._look(action_id):
                due.append(action_id)

    def _followed(self, action_id: str) -> float:
        return self.passes[action_id].looked_at

    def _look(self, action_id: str) -> bool:
        """Looks at the next part of an action; returns whether that was the last of this pass."""
        at = self.passes[action_id]
        at.looked_at = time.monotonic()
        at.cursor, ended, waiting = self.bulks.follow(action_id, at.cursor, AT_ONCE)
        at.ended += ended
        at.waiting.update(waiting)
        if at.cursor != "0":
            return False
        self.bulks.note_waiting(action_id, at.waiting)
        self.passes[action_id] = Pass(not_before=time.monotonic() + (0.0 if at.ended else REST))
        return True
