"""Notices jobs that arrive in RQ's queues, without taking them."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable

from redis import Redis
from redis.exceptions import NoPermissionError, RedisError

log = logging.getLogger(__name__)

_BLOCK = 0.4
"""Seconds for which a thread waits in Redis."""
PAUSE = 0.01
"""Seconds between two looks at a queue that is not empty."""
_AFTER_AN_ERROR = 1.0


class Arrivals:
    """Sets an event while one of these lists is not empty, with a thread for each.

    It moves the first entry to where it is: of all commands that wait for a list, this one leaves the list as it was.
    """

    def __init__(self, redis: Redis, lists: Iterable[str], arrived: threading.Event) -> None:
        self.redis = redis
        self.arrived = arrived
        self._stopping = threading.Event()
        self._threads = [
            threading.Thread(target=self._watch, args=(key,), name="rq-arrivals", daemon=True) for key in lists
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Ends the threads; each may wait in Redis for a moment more."""
        self._stopping.set()

    def _watch(self, key: str) -> None:
        pause = PAUSE
        while not self._stopping.wait(pause):
            pause = PAUSE
            try:
                if self.redis.blmove(key, key, _BLOCK, "LEFT", "LEFT") is not None:  # type: ignore[arg-type]
                    self.arrived.set()
            except NoPermissionError as error:
                log.warning("jobs of RQ programs are noticed a little later: %s", error)
                return
            except (RedisError, OSError) as error:
                log.debug("an RQ queue is not watched: %s", error)
                pause = _AFTER_AN_ERROR
