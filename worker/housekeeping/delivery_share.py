"""Keeps webhooks' deliveries from taking every executor: receivers that do not answer would hold up all other tasks.

A limit on their type: half of the executors of all workers, at least one. It is there only while deliveries are on
record, so who uses no webhooks sees none; one that somebody sets or declares stands instead.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from shared.domain.task import WEBHOOK_TYPE
from shared.redis import keys
from shared.stores.limits import Limit, Limits
from shared.stores.workers import Workers

NAME = f"type:{WEBHOOK_TYPE}"
EVERY = 10.0
"""Seconds between looks at how many executors there are."""


class DeliveryShare:
    """The part of the executors that deliveries may occupy."""

    def __init__(self, limits: Limits, workers: Workers, clock: Callable[[], float] = time.monotonic) -> None:
        self.limits = limits
        self.workers = workers
        self.clock = clock
        self.next_look = float("-inf")

    def keep(self) -> None:
        """Sets the limit, now and then."""
        if self.clock() >= self.next_look:
            self.next_look = self.clock() + EVERY
            self.limits.share(NAME, self._limit())

    def _limit(self) -> Limit | None:
        if not self.workers.redis.exists(keys.tasks_of_type(WEBHOOK_TYPE)):
            return None
        executors = sum(each.executors for each in self.workers.all() if each.state != "draining")
        return Limit(concurrency=max(1, executors // 2))
