"""Fixtures of tests that look at metrics."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from redis import Redis

from firmq.shared.local.embedded_redis import EmbeddedRedis
from tests.support.harness import System, running_system


@pytest.fixture(scope="module")
def module_system(redis_server: EmbeddedRedis, tmp_path_factory: pytest.TempPathFactory) -> Iterator[System]:
    """An empty system for all tests of a file."""
    redis_server.start()
    with Redis.from_url(redis_server.url, socket_timeout=5, protocol=2) as redis:
        redis.flushall()
        with running_system(redis, redis_server.url, tmp_path_factory.mktemp("system")) as system:
            yield system
