"""How many more tasks a worker may claim from the queues for which QUEUE_EXECUTORS bounds the executors."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping

from firmq.worker.engine.claimed_task import ClaimedTask
from firmq.worker.executors.pool import ExecutorPool


class QueueSlots:
    """Counts the tasks of each bounded queue that the worker holds, from claim to end.

    Counts are computed, not updated at start and end, so no way of ending can leak a slot.
    """

    def __init__(self, limits: Mapping[str, int], pool: ExecutorPool, ready: deque[ClaimedTask]) -> None:
        self.limits = limits
        self.pool = pool
        self.ready = ready
        self.full: frozenset[str] = frozenset()
        """The queues without a free slot after the last claim."""

    def in_use(self) -> dict[str, int]:
        """Returns how many slots of each bounded queue are taken; may be called from any thread."""
        if not self.limits:
            return {}
        claimed = [*self.ready, *self._assigned()]
        counts = Counter(each.queue for each in claimed)
        return {queue: counts[queue.encode()] for queue in self.limits}

    def free(self) -> dict[str, int]:
        """Returns how many more tasks of each bounded queue may be claimed."""
        return {queue: max(0, self.limits[queue] - used) for queue, used in self.in_use().items()}

    def may_start(self, claimed: ClaimedTask, beside: Iterable[ClaimedTask]) -> bool:
        """Returns whether a task may start, with these that start beside it.

        One from the concurrent lane may not: its claim did not regard the bounds.
        """
        most = self.limits.get(claimed.queue_name) if self.limits else None
        return most is None or sum(each.queue == claimed.queue for each in (*self._assigned(), *beside)) < most

    def _assigned(self) -> Iterator[ClaimedTask]:
        held = (each for executor in list(self.pool) for each in list(executor.assigned.values()))
        return (each for each in held if not each.concurrent)

    def update(self) -> None:
        """Records which queues are full, after tasks were claimed."""
        self.full = frozenset(queue for queue, free in self.free().items() if not free)

    def freed(self) -> bool:
        """Returns whether a queue that was full after the last claim has a free slot now."""
        if not self.full:
            return False
        free = self.free()
        return any(free[queue] for queue in self.full)
