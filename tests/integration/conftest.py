"""Fixtures of tests that run real workers, or the scripts by themselves."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from redis import Redis

from firmq.shared.stores.limits import Limits
from tests.support.harness import System, running_system
from tests.support.store import Store, store_on


@pytest.fixture
def system(redis_client: Redis, redis_url: str, tmp_path: Path) -> Iterator[System]:
    """A system without processes; a test starts what it needs."""
    with running_system(redis_client, redis_url, tmp_path) as running:
        yield running


@pytest.fixture
def store(redis_client: Redis) -> Store:
    """The scripts on a clock that stands still."""
    return store_on(redis_client)


@pytest.fixture
def limits(store: Store) -> Limits:
    return Limits(store.scripts)
