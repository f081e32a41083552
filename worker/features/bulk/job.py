"""bulk: carries out bulk actions, each at its rate, and counts how the tasks that they retried end.

A retry with a canary waits for the end of its first tasks, and is stopped when too few of those that ended completed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any

from firmq.shared.features.bulk.store import BulkAction, BulkActions
from firmq.shared.stores.audit import Audit
from firmq.shared.stores.locks import HeldLock
from firmq.worker.housekeeping.registry import RunResult

TICK = 0.1
PERIOD = 1.0
"""Seconds of one run, in which there is a step of every action at each tick; also the pause without open actions."""
MOST = 100
"""Tasks in one step: about 3 ms of Redis."""
STEPS = 10
"""Steps of one action at one tick."""
CALLS = 20
AT_ONCE = 100
"""Retried tasks per call; with CALLS calls per second for all actions, 100,000 tasks take less than a minute."""


class Bulk:
    """The steps of all open actions; `bulk_step.lua` records their progress, so any housekeeper can continue."""

    name = "bulk"
    interval = timedelta(seconds=PERIOD)

    def __init__(
        self,
        bulk_actions: BulkActions,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
        amend: Callable[[Sequence[str], Any], Mapping[str, str]] | None = None,
    ) -> None:
        """`amend` returns the changed data of dead letters, as it is stored."""
        self.bulk_actions = bulk_actions
        self.amend = amend
        self.sleep = sleep
        self.clock = clock
        self.follow_up = FollowUp(bulk_actions)
        self.audit = Audit(bulk_actions.redis)
        self.due: dict[str, float] = {}
        """When the next task of each action is due, in seconds of the monotonic clock."""

    def run(self, held: HeldLock) -> RunResult:
        self.follow_up.step()
        done, end = 0, self.clock() + PERIOD
        while running := self._running():
            held.check()
            done += sum(self._carry_out(action, held) for action in running)
            if self.clock() >= end:
                return RunResult(done, more=True)
            self.sleep(TICK)
        return RunResult(done)

    def _running(self) -> list[BulkAction]:
        running = [each for each in self.bulk_actions.unfinished() if each.state == "running"]
        self.due = {each.id: self.due[each.id] for each in running if each.id in self.due}
        return running

    def _carry_out(self, action: BulkAction, held: HeldLock) -> int:
        """Processes as many tasks as the rate allows since the last tick, without a burst after a pause."""
        if why := action.failure:
            self._stop(action, why)
            return 0
        now = self.clock()
        due = max(self.due.get(action.id, now), now - PERIOD)
        allowed = int((now - due) * action.rate) + 1 if now >= due else 0
        if action.allowance is not None:
            allowed = min(allowed, action.allowance)
        total = 0
        for _ in range(STEPS):
            if allowed <= total:
                break
            handled, more = self.bulk_actions.step(action, min(MOST, allowed - total), held.fencing_token, self.amend)
            total += handled
            if not more:
                break
        self.due[action.id] = due + total / action.rate
        return total

    def _stop(self, action: BulkAction, why: str) -> None:
        if self.bulk_actions.change(action.id, "aborted", why):
            self.audit.record("housekeeper", "stopped bulk action", action.id, why)


class FollowUp:
    """Counts how retried tasks end, each once."""

    def __init__(self, bulk_actions: BulkActions) -> None:
        self.bulk_actions = bulk_actions
        self.cursors: dict[str, str] = {}
        """The cursor in the tasks of each action."""

    def step(self) -> None:
        """Checks the next tasks of every followed action."""
        self.cursors = {each: self.cursors.get(each, "0") for each in self.bulk_actions.followed()}
        calls = max(1, CALLS // max(1, len(self.cursors)))
        for action_id in self.cursors:
            for _ in range(calls):
                self.cursors[action_id] = self.bulk_actions.follow(action_id, self.cursors[action_id], AT_ONCE)
                if self.cursors[action_id] == "0":
                    break
