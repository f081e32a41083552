"""What all housekeeping jobs have in common."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Protocol

from shared.failpoints import stop_point
from shared.redis.scripts import Pruned
from shared.stores.locks import HeldLock


@dataclass(frozen=True, slots=True)
class RunResult:
    """How many things a round, or a part of one, put right, and whether there is `more`: it ended at its bound."""

    done: int = 0
    more: bool = False

    def __add__(self, other: RunResult) -> RunResult:
        return RunResult(self.done + other.done, self.more or other.more)


class HousekeepingJob(Protocol):
    """One job: it does a bounded piece of work and says how much it did."""

    name: str
    interval: timedelta

    def run(self, held: HeldLock) -> RunResult:
        """One round. Bounded, so that all parts of a job have their turns; where there is more, another comes at once.

        It shows the permit of its lock with every step, and asks the lock between steps whether to go on: LockLost
        ends the round.
        """
        ...


def until_done(held: HeldLock, step: Callable[[], int], batch: int, most: int) -> RunResult:
    """Repeats a step until it finds less than a batch, or for `most` times."""
    return removed_until_done(held, lambda: Pruned(count := step(), count), batch, most)


def removed_until_done(held: HeldLock, step: Callable[[], Pruned], batch: int, most: int) -> RunResult:
    """The same for a step that leaves some of what it looks at: where most is left, there is no hurry to look again."""
    removed = looked = 0
    for _ in range(most):
        held.check()
        pruned = step()
        removed += pruned.removed
        looked += pruned.looked
        if pruned.looked:
            stop_point("housekeeper.between-batches")
        if pruned.looked < batch:
            return RunResult(removed)
    return RunResult(removed, more=2 * removed > looked)
