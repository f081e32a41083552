"""Background work of a dashboard: keeps the snapshot fresh, carries out bulk actions and follows their outcomes."""

from __future__ import annotations

import logging
import secrets
import threading
import time

from dashboard.follow_up import FollowUp
from dashboard.overview import OverviewCache
from shared.errors import TaskQueueError
from shared.stores.bulk_actions import BulkAction, BulkActions

log = logging.getLogger(__name__)

TICK = 0.1
IDLE = 1.0
"""Seconds between checks for new bulk actions."""
MOST = 200


class Background:
    """Three daemon threads; another process continues the work that is left when this one ends."""

    def __init__(self, overview_cache: OverviewCache, bulks: BulkActions) -> None:
        self.overview_cache = overview_cache
        self.bulks = bulks
        self.follow_up = FollowUp(bulks)
        self.who = secrets.token_hex(8)
        self.due: dict[str, float] = {}
        self.stopped = threading.Event()

    def start(self) -> None:
        works = (
            (self.overview_cache.keep_fresh, lambda: 0.25),
            (self.carry_out, self._pause),
            (self.follow_up.step, lambda: IDLE),
        )
        for work, pause in works:
            threading.Thread(target=self._repeat, args=(work, pause), name=work.__name__, daemon=True).start()

    def stop(self) -> None:
        self.stopped.set()

    def carry_out(self) -> None:
        """Carries out one step of every open bulk action."""
        open_actions = {action.id: action for action in self.bulks.unfinished()}
        self.due = {each: due for each, due in self.due.items() if each in open_actions}
        for action in open_actions.values():
            if action.state != "paused":
                self._step(action)

    def _step(self, action: BulkAction) -> None:
        """Processes as many tasks as the rate allows since the last step, without a burst after a pause."""
        now = time.monotonic()
        due = max(self.due.get(action.id, now), now - IDLE)
        allowed = min(MOST, int((now - due) * action.rate) + 1)
        if now < due:
            return
        done = self.bulks.step(action, self.who, allowed)
        self.due[action.id] = due + done / action.rate if done else now + TICK

    def _pause(self) -> float:
        return TICK if self.due else IDLE

    def _repeat(self, work: object, pause: object) -> None:
        assert callable(work)  # noqa: S101  # for the type checker
        assert callable(pause)  # noqa: S101
        while not self.stopped.wait(pause()):
            try:
                work()
            except TaskQueueError as error:
                log.debug("%s: %s", getattr(work, "__name__", "background"), error)
            except Exception:
                log.exception("background step failed; retrying")
