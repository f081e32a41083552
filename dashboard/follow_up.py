"""Follows the tasks that bulk actions retried until they end, a bounded number per second."""

from __future__ import annotations

import time
from collections import Counter, deque
from dataclasses import dataclass, field

from shared.stores.bulk_actions import BulkActions

CALLS = 20
AT_ONCE = 100
"""Tasks per call; with CALLS calls per second for all actions together, 100,000 tasks take less than a minute."""
REST = 5.0
"""Seconds before the next pass if no task had ended."""


@dataclass(slots=True)
class Pass:
    """One pass over the tasks of an action that have not ended."""

    cursor: str = "0"
    ended: int = 0
    waiting: Counter[str] = field(default_factory=Counter)
    not_before: float = 0.0
    looked_at: float = 0.0


class FollowUp:
    """Counts the outcomes; several processes may do so at the same time, and each task is counted once."""

    def __init__(self, bulks: BulkActions) -> None:
        self.bulks = bulks
        self.passes: dict[str, Pass] = {}

    def step(self) -> None:
        """Checks the next tasks of every followed action."""
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
        """Checks the next part of an action; returns whether the pass is complete."""
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
