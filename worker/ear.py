"""Waiting for Redis to call, in threads of their own so that the engine never blocks."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import cast

from redis import Redis
from redis.exceptions import RedisError

log = logging.getLogger(__name__)


class Ear:
    """Blocks on a list and hands every entry on.

    It listens only while it is open: the bell wakes one worker, so a busy one must not take the
    ring from an idle one.
    """

    def __init__(self, redis: Redis, key: str, patience: float, hand_on: Callable[[bytes | None], None]) -> None:
        self.redis = redis
        self.key = key
        self.patience = patience
        self.hand_on = hand_on
        self.stopped = threading.Event()
        self._open = threading.Event()
        self._open.set()
        self._thread = threading.Thread(target=self._listen, name=f"ear {key}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def open(self) -> None:
        self._open.set()

    def shut(self) -> None:
        """Ends listening after the call that is under way."""
        self._open.clear()

    def stop(self) -> None:
        self.stopped.set()
        self._open.set()

    def _listen(self) -> None:
        while not self.stopped.is_set():
            self._open.wait()
            try:
                heard = cast("tuple[bytes, bytes] | None", self.redis.blpop([self.key], timeout=self.patience))
            except (RedisError, OSError) as error:
                log.debug("waiting on %s failed: %s", self.key, error)
                self.stopped.wait(1.0)
                continue
            if not self.stopped.is_set():
                self.hand_on(heard[1] if heard else None)
