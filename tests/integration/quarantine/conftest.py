"""One furnished system for all cases of a file."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from firmq.shared.local.embedded_redis import EmbeddedRedis
from tests.integration.quarantine.scene import Scene
from tests.support import one_slot
from tests.support.least_privilege import url_of_user


@pytest.fixture(scope="module")
def scene(redis_server: EmbeddedRedis) -> Iterator[Scene]:
    redis_server.start()
    with one_slot.client_of(redis_server) as client:
        client.flushall()
        found = Scene(client, url_of_user(redis_server))
        yield found
        found.close()
        client.flushall()
