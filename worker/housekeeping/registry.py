"""The common interface of all housekeeping jobs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Protocol

from firmq.shared.failpoints import failpoint
from firmq.shared.stores.locks import HeldLock
from firmq.shared.stores.maintenance import Pruned


@dataclass(frozen=True, slots=True)
class RunResult:
    """Outcome of a run or a part of it: how many items were handled, and whether there is `more`."""

    done: int = 0
    more: bool = False

    def __add__(self, other: RunResult) -> RunResult:
        return RunResult(self.done + other.done, self.more or other.more)


class HousekeepingJob(Protocol):
    """A job: does a bounded piece of work and returns how much."""

    name: str
    interval: timedelta

    def run(self, held: HeldLock) -> RunResult:
        """Does one run, bounded, so that all parts of a job are served; with `more` the next run follows at once.

        Every step carries the fencing token of the lock, and the lock is checked between steps: LockLost ends the run.
        """
        ...


def until_done(held: HeldLock, step: Callable[[], int], batch: int, most: int) -> RunResult:
    """Repeats a step until it finds less than a batch, or for `most` times."""
    return removed_until_done(held, lambda: Pruned(count := step(), count), batch, most)


def removed_until_done(held: HeldLock, step: Callable[[], Pruned], batch: int, most: int) -> RunResult:
    """Does as `until_done` with a step that may keep items; asks for another run only if most were removed."""
    removed = looked = 0
    for _ in range(most):
        held.check()
        pruned = step()
        removed += pruned.removed
        looked += pruned.looked
        if pruned.looked:
            failpoint("housekeeper.between-batches")
        if pruned.looked < batch:
            return RunResult(removed)
    return RunResult(removed, more=2 * removed > looked)
