"""recovery: gives waiting tasks that no list leads to a new ticket."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from datetime import timedelta

from shared.clock import to_us
from shared.scripts import Scripts

log = logging.getLogger(__name__)

BATCH = 200
ROUNDS = 20


class Recovery:
    """Finds pending tasks whose ticket was lost: a list deleted by hand, a ticket popped by a stranger."""

    name = "recovery"

    def __init__(self, scripts: Scripts, queues: Sequence[str], interval: timedelta, grace: timedelta) -> None:
        self.scripts = scripts
        self.queues = queues
        self.interval = interval
        self.grace = grace

    def run(self) -> int:
        return sum(self._recover(queue) for queue in self.queues)

    def _recover(self, queue: str) -> int:
        found = 0
        for _ in range(ROUNDS):
            count = self.scripts.recover(queue, to_us(self.grace), BATCH)
            found += count
            if count < BATCH:
                break
        if found:
            log.warning("queue %s: %d pending tasks had lost their ticket and have a new one", queue, found)
        return found
