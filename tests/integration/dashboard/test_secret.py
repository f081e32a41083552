"""The key that signs cookies, when what Redis keeps of it is gone or is none."""

from __future__ import annotations

from typing import cast

import pytest
from redis import Redis

from firmq.dashboard.auth.sessions import SignedCookies
from firmq.shared.redis.client import text
from tests.support.keys import keys


class Forgetful:
    """A Redis that loses the key between the two commands that ask for it, for the first time."""

    def __init__(self, redis: Redis) -> None:
        self.redis = redis
        self.connection_pool = redis.connection_pool
        self.lost = False

    def set(self, name: str, value: str, *, nx: bool) -> object:
        return self.redis.set(name, value, nx=nx)

    def get(self, name: str) -> object:
        if not self.lost:
            self.lost = True
            self.redis.delete(name)
        return self.redis.get(name)


def test_a_key_that_goes_while_it_is_asked_for_is_asked_for_again(redis_client: Redis) -> None:
    keeper = SignedCookies("", cast("Redis", Forgetful(redis_client)))
    assert keeper.key() == keeper.temporary
    kept = keeper.key()
    assert kept == text(redis_client.get(keys.DASHBOARD_SECRET))
    assert len(kept) == 64
    assert SignedCookies("", redis_client).key() == kept, "all processes share it"


@pytest.mark.parametrize("stored", ["", b"\xff"])
def test_what_is_stored_is_never_an_empty_key(redis_client: Redis, stored: str | bytes) -> None:
    redis_client.set(keys.DASHBOARD_SECRET, stored)
    assert SignedCookies("", redis_client).key()
