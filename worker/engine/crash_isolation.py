"""Crash isolation: which tasks that may crash a worker start beside which others."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

from firmq.worker.engine.claimed_task import SETTLED, ClaimedTask
from firmq.worker.executors.process import ExecutorProcess


class CrashIsolation:
    """Isolates suspects: when one kills the worker, all tasks beside it are charged, since the culprit is unknown.

    So a suspect whose next crash would be its last starts when no other runs, and while it waits, or has just begun, no
    other starts: a task that kills workers becomes a dead letter alone.
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
        """Returns whether any of these has to start alone."""
        return any(map(self._begins_alone, ready))

    def may_start(self, claimed: ClaimedTask, one_waits: bool) -> bool:
        """Returns whether it may start beside the running ones; `one_waits`: a task that has to start alone waits."""
        running = self._running()
        if self._begins_alone(claimed):
            return not running
        return not one_waits and not any(map(self._begins_alone, running))

    def _running(self) -> list[ClaimedTask]:
        since = self.monotonic() - SETTLED
        return [
            claimed
            for executor in self.executors
            for claimed in executor.assigned.values()
            if claimed.crashed_before and executor.began_at(claimed) > since
        ]

    def _begins_alone(self, claimed: ClaimedTask) -> bool:
        return claimed.crashed_before and claimed.crashes >= self.max_crashes - 1
