"""Background work of a dashboard: carries out bulk actions, and counts how the tasks that they retried end."""

from __future__ import annotations

import logging
import secrets
import threading
import time
from collections import Counter
from collections.abc import Callable

from taskqueue.shared.errors import TaskQueueError
from taskqueue.shared.stores.bulk_actions import BulkAction, BulkActions

log = logging.getLogger(__name__)

TICK = 0.1
IDLE = 1.0
"""Seconds between checks for new bulk actions."""
MOST = 200
CALLS = 20
AT_ONCE = 100
"""Retried tasks per call; with CALLS calls per second for all actions, 100,000 tasks take less than a minute."""


class Background:
    """Two daemon threads; another process continues the work that is left when this one ends."""

    def __init__(self, bulk_actions: BulkActions) -> None:
        self.runner = BulkRunner(bulk_actions)
        self.follow_up = FollowUp(bulk_actions)

    def start(self) -> None:
        """Starts the threads."""
        for step in (self.runner.step, self.follow_up.step):
            threading.Thread(target=_repeat, args=(step,), name=type(step).__name__, daemon=True).start()


def _repeat(step: Callable[[], float]) -> None:
    """Calls `step` forever; it returns after how many seconds it wants to be called again."""
    while True:
        pause = IDLE
        try:
            pause = step()
        except TaskQueueError as error:
            log.debug("background step failed: %s", error)
        except Exception:
            log.exception("background step failed; retrying")
        time.sleep(pause)


class BulkRunner:
    """Carries out the open bulk actions, each at its rate."""

    def __init__(self, bulk_actions: BulkActions) -> None:
        self.bulk_actions = bulk_actions
        self.who = secrets.token_hex(8)
        self.due: dict[str, float] = {}
        """When the next task of each action is due, in seconds of the monotonic clock."""

    def step(self) -> float:
        """Carries out one step of every open action; returns after how many seconds the next one is due."""
        found = {action.id: action for action in self.bulk_actions.unfinished()}
        self.due = {each: due for each, due in self.due.items() if each in found}
        for action in found.values():
            if action.state != "paused":
                self._carry_out(action)
        return TICK if self.due else IDLE

    def _carry_out(self, action: BulkAction) -> None:
        """Processes as many tasks as the rate allows since the last step, without a burst after a pause."""
        now = time.monotonic()
        due = max(self.due.get(action.id, now), now - IDLE)
        if now < due:
            return
        done = self.bulk_actions.step(action, self.who, min(MOST, int((now - due) * action.rate) + 1))
        self.due[action.id] = due + done / action.rate if done else now + TICK


class FollowUp:
    """Counts how retried tasks end; several processes may do so at the same time, and each task is counted once."""

    def __init__(self, bulk_actions: BulkActions) -> None:
        self.bulk_actions = bulk_actions
        self.passes: dict[str, tuple[str, Counter[str]]] = {}
        """The cursor in the tasks of each action, and what those before it wait for."""

    def step(self) -> float:
        """Checks the next tasks of every followed action; returns after how many seconds to check again."""
        followed = self.bulk_actions.followed()
        self.passes = {each: self.passes.get(each, ("0", Counter())) for each in followed}
        for action_id in followed:
            for _ in range(max(1, CALLS // len(followed))):
                if self._check(action_id):
                    break
        return IDLE

    def _check(self, action_id: str) -> bool:
        """Checks the next tasks of an action; returns whether all have been checked."""
        cursor, waiting = self.passes[action_id]
        cursor, _, found = self.bulk_actions.follow(action_id, cursor, AT_ONCE)
        waiting.update(found)
        self.passes[action_id] = (cursor, waiting)
        if cursor == "0":
            self.bulk_actions.note_waiting(action_id, waiting)
            del self.passes[action_id]
        return cursor == "0"
