"""A system with a prefix on a node of a cluster, where every key has to be in the slot of the prefix.

With TEST_ONE_SLOT=1 the tests of one server run like this: a script that touches a key without the prefix fails.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from redis import Connection, ConnectionPool, Redis

from taskqueue.shared.local.embedded_redis import EmbeddedRedis

PREFIX = "{tq0}" if os.environ.get("TEST_ONE_SLOT") == "1" else ""
_OPTIONS = {"cluster-enabled": "yes", "cluster-config-file": "nodes.conf"}


class _Prefixed(Connection):
    """A connection of a client whose keys have the prefix."""

    def __init__(self, *, key_prefix: str, **options: Any) -> None:
        super().__init__(**options)  # type: ignore[no-untyped-call]


@contextmanager
def node(folder: Path) -> Iterator[EmbeddedRedis]:
    """A node that has all slots."""
    with EmbeddedRedis(data_dir=folder, options=_OPTIONS) as server, Redis.from_url(server.url) as client:
        client.execute_command("CLUSTER", "ADDSLOTSRANGE", 0, 16383)
        yield server


def url_of(server: EmbeddedRedis) -> str:
    """The address for the parts of the product."""
    return f"{server.url}{'&' if '?' in server.url else '?'}key_prefix={PREFIX}"


def client_of(server: EmbeddedRedis) -> Redis:
    """A client that the stores read the prefix from."""
    pool = ConnectionPool.from_url(
        server.url, connection_class=_Prefixed, key_prefix=PREFIX, socket_timeout=5, protocol=2
    )
    return Redis(connection_pool=pool)
