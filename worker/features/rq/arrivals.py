"""Detects jobs that arrive in RQ's queues, without taking them."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable
from typing import Any

from redis import Redis
from redis.exceptions import NoPermissionError, RedisError

log = logging.getLogger(__name__)

_BLOCK = 0.4
"""Seconds for which a thread waits in Redis."""
PAUSE = 0.01
"""Seconds between two looks at a queue whose first entry stays: it is full or suspended, or holds tasks of ours."""
_AFTER_AN_ERROR = 1.0


class Arrivals:
    """Sets an event while one of these lists is not empty, with a thread for each.

    It moves the first entry to where it is: of all commands that wait for a list, this one leaves the list as it was.
    """

    def __init__(self, redis: Redis, lists: Iterable[str], arrived: threading.Event) -> None:
        self.redis: Any = redis
        self.arrived = arrived
        self._stopping = threading.Event()
        self._looked = {key: threading.Event() for key in lists}
        self._threads = [
            threading.Thread(target=self._watch, args=item, name="rq-arrivals", daemon=True)
            for item in self._looked.items()
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Ends the threads; each may wait in Redis for a moment more."""
        self._stopping.set()
        self.looked()

    def looked(self) -> None:
        """Records that the arrived jobs were taken, as far as possible."""
        for each in self._looked.values():
            each.set()

    def _watch(self, key: str, looked: threading.Event) -> None:
        # A job that is enqueued when the one before has ended must not wait for a pause, so only an entry that a look
        # has left makes one.
        pause, first = 0.0, None
        while not self._stopping.wait(pause):
            pause = 0.0
            try:
                before, first = first, self.redis.blmove(key, key, _BLOCK, "LEFT", "LEFT")
                if first is not None:
                    pause = PAUSE if first == before else 0.0
                    looked.clear()
                    self.arrived.set()
                    looked.wait(_BLOCK)
            except NoPermissionError as error:
                log.warning("new jobs of RQ programs start a little later: %s", error)
                return
            except (RedisError, OSError) as error:
                log.debug("an RQ queue is not watched for new jobs: %s", error)
                pause = _AFTER_AN_ERROR
