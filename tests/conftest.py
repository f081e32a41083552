"""What the tests stand on: a real server of their own, one per test process, flushed before each test."""

from __future__ import annotations

import os
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
import redis
from hypothesis import settings

from firmq.shared.errors import SettingsError
from firmq.shared.local.embedded_redis import EmbeddedRedis
from firmq.shared.stores.locks import RedisLock, RedisLocks
from tests.support import harness, one_slot
from tests.support.fork_server import ForkServers
from tests.support.least_privilege import guarded_server, url_of_user
from tests.support.postgresql import PostgreSQL, running_postgresql

# How long one example takes is the machine's affair; the time-out of the whole test bounds it.
settings.register_profile("patient", deadline=None)
settings.load_profile("patient")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """When only those are wanted that must be alone, files without any are not imported: nothing else goes on then."""
    if config.option.markexpr in ("alone", "registration") and collection_path.match("test_*.py"):
        return None if f"pytest.mark.{config.option.markexpr}" in collection_path.read_text() else True
    return None


for _phase in ("connect", "read", "write", "pool"):  # the default, 5 s, is short on a machine that stands still
    setattr(httpx._config.DEFAULT_TIMEOUT_CONFIG, _phase, 60.0)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The order in which files are begun: those that wait for minutes, so that nothing is left to wait with them in the
    end, then those with most tests."""
    if one_slot.PREFIX:
        for item in items:
            if why := one_slot.why_not(item.nodeid):
                item.add_marker(pytest.mark.skip(reason=why))
    sizes = Counter(item.path for item in items)
    items.sort(key=lambda item: (item.get_closest_marker("begins_first") is None, -sizes[item.path]))


@pytest.fixture(scope="session", autouse=True)
def fork_servers() -> Iterator[None]:
    """What starts parts of the product, unless they are to be started as they ship."""
    if sys.platform == "linux" and os.environ.get("TEST_REAL_STARTS") != "1":
        harness.fork_servers = ForkServers()
    yield
    if harness.fork_servers:
        harness.fork_servers.close()


@pytest.fixture(autouse=True)
def nothing_left_to_the_next_test(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Ends the renewing of locks that a test did not release, and takes back the time zone that Django sets."""
    made, watch, zone, names = [], RedisLocks._watch, os.environ.get("TZ"), time.tzname

    def note(self: RedisLocks, held: RedisLock) -> None:
        made.append(self)
        watch(self, held)

    monkeypatch.setattr(RedisLocks, "_watch", note)
    yield
    for each in made:
        each.stop()
    if (os.environ.get("TZ"), time.tzname) != (zone, names):
        os.environ.pop("TZ", None)
        if zone is not None:
            os.environ["TZ"] = zone
        time.tzset()


@pytest.fixture(scope="session")
def redis_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedRedis]:
    """A server in a folder of its own; it may be stopped, killed and started again, and must be left running."""
    folder = tmp_path_factory.mktemp("redis")
    try:
        server = one_slot.node(folder) if one_slot.PREFIX else guarded_server(folder)
    except SettingsError as error:
        # At a desk the other tests are still worth running; in CI a skipped promise would look like a kept one.
        if os.environ.get("CI") == "true":
            raise
        pytest.skip(str(error))
    with server:
        yield server


@pytest.fixture(scope="session")
def postgresql() -> Iterator[PostgreSQL]:
    """A database server, started by the first test that needs one."""
    with running_postgresql() as server:
        yield server


@pytest.fixture
def redis_url(redis_server: EmbeddedRedis) -> str:
    """The server's address for the parts of the product, which are let do what they need and nothing else."""
    return url_of_user(redis_server)


@pytest.fixture
def redis_client(redis_server: EmbeddedRedis) -> Iterator[redis.Redis]:
    """A client of an empty database; answers are bytes, as in the product."""
    redis_server.start()  # a test that failed half-way may have left it stopped
    with one_slot.client_of(redis_server) as client:
        client.flushall()
        yield client
