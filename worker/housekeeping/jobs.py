"""What all housekeeping jobs have in common."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Protocol

from shared.locks import HeldLock
from shared.scripts import Pruned
from shared.stop_points import stop_point


class HousekeepingJob(Protocol):
    """One job: it does a bounded piece of work and says how much it did."""

    name: str
    interval: timedelta

    def run(self, held: HeldLock) -> int:
        """One round; how many things it put right. Bounded, so that no round holds Redis for long.

        It shows the permit of its lock with every step, and asks the lock between steps whether to go on: LockLost
        ends the round.
        """
        ...


def until_done(held: HeldLock, step: Callable[[], int], batch: int, most: int) -> int:
    """Repeats a step until it finds less than a batch, or for `most` times; the sum."""
    return removed_until_done(held, lambda: Pruned(count := step(), count), batch, most)


def removed_until_done(held: HeldLock, step: Callable[[], Pruned], batch: int, most: int) -> int:
    """The same for a step that leaves some of what it looks at; how many it removed."""
    total = 0
    for _ in range(most):
        held.check()
        pruned = step()
        total += pruned.removed
        if pruned.looked:
            stop_point("housekeeper.between-batches")
        if pruned.looked < batch:
            break
    return total
