"""Fixtures of tests that run real workers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from redis import Redis

from tests.harness import System, running_system


@pytest.fixture
def system(redis_client: Redis, redis_url: str, tmp_path: Path) -> Iterator[System]:
    """A system without processes; a test starts what it needs."""
    with running_system(redis_client, redis_url, tmp_path) as running:
        yield running
