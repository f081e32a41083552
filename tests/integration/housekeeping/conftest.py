"""Scripts on a clock that moves when told to, and instances that share their locks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import timedelta

import pytest
from redis import Redis

from firmq.shared.redis.scripts import Scripts
from firmq.shared.stores.locks import RedisLocks
from tests.integration.housekeeping.cluster import Cluster
from tests.support.clock import FakeClock
from tests.support.harness import System, wait_until


@dataclass
class Ticker:
    """A monotonic clock that moves when told to."""

    now: float = 1000.0

    def __call__(self) -> float:
        return self.now


@dataclass
class Machine:
    """Redis' clock and everybody's monotonic clock, moved together or, for a frozen process, apart."""

    redis: Redis
    clock: FakeClock = field(default_factory=FakeClock)
    ticker: Ticker = field(default_factory=Ticker)

    def __post_init__(self) -> None:
        self.scripts = Scripts(self.redis, self.clock)

    def instance(self, owner: str) -> RedisLocks:
        """Its watchdog is off: what is renewed, and when, is up to the test."""
        locks = RedisLocks(self.scripts, owner, monotonic=self.ticker)
        locks.stop()
        return locks

    def advance(self, seconds: float) -> None:
        self.clock.advance(timedelta(seconds=seconds))
        self.ticker.now += seconds


@pytest.fixture
def machine(redis_client: Redis) -> Machine:
    return Machine(redis_client)


@pytest.fixture
def cluster(system: System) -> Iterator[Cluster]:
    """Three housekeepers that run, one of which leads."""
    members = Cluster(system)
    members.start()
    wait_until(members.leader, "somebody leads")
    yield members
    members.close()
