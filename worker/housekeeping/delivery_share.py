"""Keeps webhook deliveries from taking every slot: slow receivers would delay all other tasks that wait.

Sets a limit on their type: half of the slots of all workers, at least one. The limit exists only while deliveries are
on record; a limit that is set or declared takes precedence.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from taskqueue.shared.domain.limit import Limit
from taskqueue.shared.domain.task import WEBHOOK_TYPE
from taskqueue.shared.stores.limits import Limits
from taskqueue.shared.stores.workers import Workers

NAME = f"type:{WEBHOOK_TYPE}"
EVERY = 10.0
"""Seconds between checks of the number of slots."""


class DeliveryShare:
    """The part of the slots that deliveries may occupy."""

    def __init__(self, limits: Limits, workers: Workers, clock: Callable[[], float] = time.monotonic) -> None:
        self.limits = limits
        self.workers = workers
        self.clock = clock
        self.next_look = float("-inf")

    def keep(self) -> None:
        """Sets the limit, at intervals."""
        if self.clock() >= self.next_look:
            self.next_look = self.clock() + EVERY
            self.limits.share(NAME, self._limit())

    def _limit(self) -> Limit | None:
        if not self.workers.redis.exists(self.workers.keys.tasks_of_type(WEBHOOK_TYPE)):
            return None
        slots = sum(each.slots or each.executors for each in self.workers.all() if each.state != "draining")
        return Limit(concurrency=max(1, slots // 2))
