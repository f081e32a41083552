"""Keeps webhook deliveries and HTTP tasks from taking every slot: slow servers would delay all other waiting tasks.

Sets a limit on their types: for deliveries half of the slots of all workers, for HTTP tasks three quarters of those in
threads, so that deliveries need not wait for them. A limit exists only while tasks of its type are on record; one that
is set or declared takes precedence.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from firmq.shared.domain.http_task import HTTP_TYPE
from firmq.shared.domain.limit import Limit
from firmq.shared.domain.task import WEBHOOK_TYPE
from firmq.shared.stores.limits import Limits
from firmq.shared.stores.workers import Workers

EVERY = 10.0
"""Seconds between checks of the number of slots."""


class DeliveryShare:
    """The parts of the slots that deliveries and HTTP tasks may occupy."""

    def __init__(self, limits: Limits, workers: Workers, clock: Callable[[], float] = time.monotonic) -> None:
        self.limits = limits
        self.workers = workers
        self.clock = clock
        self.next_look = float("-inf")

    def keep(self) -> None:
        """Sets the limits, at intervals."""
        if self.clock() >= self.next_look:
            self.next_look = self.clock() + EVERY
            workers = [each for each in self.workers.all() if each.state != "draining"]
            self._share(WEBHOOK_TYPE, max(1, sum(each.slots or each.executors for each in workers) // 2))
            self._share(HTTP_TYPE, sum(each.slots - each.serial_slots for each in workers if each.slots) * 3 // 4)

    def _share(self, task_type: str, slots: int) -> None:
        wanted = slots and self.workers.redis.exists(self.workers.keys.tasks_of_type(task_type))
        self.limits.share(f"type:{task_type}", Limit(concurrency=slots) if wanted else None)
