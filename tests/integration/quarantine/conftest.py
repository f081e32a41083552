"""One furnished system for all cases of a file."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import redis

from taskqueue.shared.local.embedded_redis import EmbeddedRedis
from tests.integration.quarantine.scene import Scene
from tests.support.least_privilege import url_of_user


@pytest.fixture(scope="module")
def scene(redis_server: EmbeddedRedis) -> Iterator[Scene]:
    redis_server.start()
    with redis.Redis.from_url(redis_server.url, socket_timeout=5, protocol=2) as client:
        client.flushall()
        found = Scene(client, url_of_user(redis_server))
        yield found
        found.close()
        client.flushall()
