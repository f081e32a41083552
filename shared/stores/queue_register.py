"""The existing queues: QUEUES, and queues that tasks were submitted to since."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import TYPE_CHECKING

from redis.exceptions import ResponseError

from firmq.shared.redis.client import keys_of, text, translated
from firmq.shared.redis.quarantine import raise_unless_corruption

if TYPE_CHECKING:
    from redis import Redis

    from firmq.shared.config.settings import Settings

FRESH = 1.0
"""Seconds for which the names are not read again."""


class QueueRegister(Collection[str]):
    """The names of all queues, the configured ones first; read from Redis at most once a second."""

    def __init__(
        self,
        redis: Redis,
        weights: Mapping[str, int],
        default_weight: int = 1,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """`weights` has the configured queues; all others have the default weight."""
        self.redis = redis
        self.weights = weights
        self.default_weight = default_weight
        self.monotonic = monotonic
        self._names = tuple(weights)
        self._read_at = -FRESH
        self._refused: dict[str, float] = {}

    @classmethod
    def of(cls, redis: Redis, settings: Settings) -> QueueRegister:
        """Returns the register for the settings."""
        return cls(redis, settings.queues, settings.default_weight)

    def names(self) -> tuple[str, ...]:
        """Returns all names. Raises StoreUnavailable."""
        now = self.monotonic()
        if now - self._read_at >= FRESH:
            self._names = (*self.weights, *sorted(self._created()))
            self._read_at = now
        return self._names

    def _created(self) -> set[str]:
        with translated():
            try:
                return set(map(text, self.redis.zrange(keys_of(self.redis).QUEUES, 0, -1))) - self.weights.keys()
            except ResponseError as error:
                raise_unless_corruption(error)
                return set()  # the recovery job quarantines it

    def admits(self, client: str, name: str, most: int) -> bool:
        """Returns whether the client of an API key may name a queue: it may create at most `most` of them."""
        now = self.monotonic()
        if not client or name in self.names() or now < self._refused.get(client, 0.0):
            return not client or name in self.names()
        key = keys_of(self.redis).QUEUE_CREATORS
        with translated():
            creators = {text(queue): text(by).partition(" ") for queue, by in self.redis.hgetall(key).items()}
            # A queue that was named a moment ago may not be registered yet.
            gone = [each for each, (at, _, _) in creators.items() if each not in self and float(at) < time.time() - 60]
            if gone:
                self.redis.hdel(key, *gone)
            if sum(by == client for each, (_, _, by) in creators.items() if each not in gone) >= most:
                self._refused[client] = now + FRESH
                return name in self
            self.redis.hset(key, name, f"{time.time():.0f} {client}")
        return True

    def weight(self, name: str) -> int:
        """Returns the weight of a queue for workers that give it none."""
        return self.weights.get(name, self.default_weight)

    def __iter__(self) -> Iterator[str]:
        return iter(self.names())

    def __len__(self) -> int:
        return len(self.names())

    def __contains__(self, name: object) -> bool:
        if name not in self.names():
            self._read_at = -FRESH  # it may be new
        return name in self.names()
