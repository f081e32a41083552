"""Which tasks that may have killed a worker begin beside which others."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

from worker.engine.claimed_task import ClaimedTask
from worker.executors.process import ExecutorProcess

SETTLED = 10.0
"""Seconds after which a running suspect holds up nobody: what kills a worker mostly does it soon, and others must not
wait for hours because somebody runs that long."""


class CrashIsolation:
    """When a suspect kills the worker, all that run beside it are charged; nobody can tell which of them it was.

    So one whose next crash would be its last begins when no other runs, and while it waits, or has just begun, no other
    begins: those that kill go alone into the dead letters.
    """

    def __init__(
        self,
        executors: Iterable[ExecutorProcess],
        max_crashes: int,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.executors = executors
        self.max_crashes = max_crashes
        self.monotonic = monotonic

    def one_waits(self, ready: Iterable[ClaimedTask]) -> bool:
        """Whether any of these has to begin alone."""
        return any(map(self._begins_alone, ready))

    def may_start(self, claimed: ClaimedTask, one_waits: bool) -> bool:
        """Whether it may begin beside those that run now, while one that has to begin alone waits or none does."""
        running = self._running()
        if self._begins_alone(claimed):
            return not running
        return not one_waits and not any(map(self._begins_alone, running))

    def _running(self) -> list[ClaimedTask]:
        since = self.monotonic() - SETTLED
        young = (executor for executor in self.executors if executor.began_at > since)
        return [claimed for executor in young for claimed in executor.assigned.values() if claimed.crashed_before]

    def _begins_alone(self, claimed: ClaimedTask) -> bool:
        return claimed.crashed_before and claimed.crashes >= self.max_crashes - 1
