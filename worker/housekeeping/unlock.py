"""unlock: moves due tasks (retries, run-at) to where workers take them."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

from redis.exceptions import RedisError

from shared.scripts import Scripts

log = logging.getLogger(__name__)

BATCH = 500
ROUNDS = 40
"""Batches of one queue in a row before the others have their turn again."""


class Unlock:
    """Queues are looked at side by side; an error in one does not stop the others."""

    name = "unlock"

    def __init__(self, scripts: Scripts, queues: Sequence[str], interval: timedelta, parallelism: int) -> None:
        self.scripts = scripts
        self.queues = queues
        self.interval = interval
        self.lateness_us = 0
        self._pool = ThreadPoolExecutor(max_workers=min(parallelism, len(queues)), thread_name_prefix="unlock")

    def run(self) -> int:
        self.lateness_us = 0
        return sum(self._pool.map(self._unlock, self.queues))

    def _unlock(self, queue: str) -> int:
        moved = 0
        try:
            for _ in range(ROUNDS):
                count, lateness_us, _ = self.scripts.promote(queue, BATCH)
                moved += count
                self.lateness_us = max(self.lateness_us, lateness_us)
                if count < BATCH:
                    break
        except RedisError as error:
            log.error("unlock of queue %s failed: %s", queue, error)
        return moved
