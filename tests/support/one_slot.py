"""A system with a prefix on a node of a cluster that has the slot of the prefix only.

With TEST_ONE_SLOT=1 the tests of one server run like this: whatever touches a key without the prefix fails. RQ 3 has
its keys behind the prefix too.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from redis import Connection, ConnectionPool, Redis
from redis.crc import key_slot

from firmq.shared.config.redis_address import completed
from firmq.shared.local.embedded_redis import EmbeddedRedis
from tests.support.harness import free_port, wait_until
from tests.support.least_privilege import guarded_server
from tests.support.redis_cluster import is_well

NODE_PREFIX = "{fq0}"
PREFIX = NODE_PREFIX if os.environ.get("TEST_ONE_SLOT") == "1" else ""
if PREFIX:
    os.environ["RQ_KEY_PREFIX"] = f"{PREFIX}:rq"  # of this process and of those it starts
_OPTIONS = {"cluster-enabled": "yes", "cluster-config-file": "nodes.conf", "cluster-require-full-coverage": "no"}

NOT_APPLYING = {
    "rq/test_programs": "it starts plain servers, for programs with RQ 2.12 whose keys have no prefix",
    r"(rq|worker/test_rq_tools).*2\.12\.0\]": "the keys of RQ 2.12 have no prefix",
    "rq/test_scheduler_entries": "the keys of rq-scheduler have no prefix",
    "rq/test_doctor.*schedules_of_rq_beside": "the keys of rq-scheduler have no prefix",
    "housekeeping/test_readme.*gives_the_answer_that_is_shown": "the page shows keys without a prefix",
    r"housekeeping/test_alerts.*\[FirmqRedisReadOnly\]": "a node of a cluster becomes no replica by REPLICAOF",
    "local/test_start.*folder_of_another_version": "it starts a plain server",
    "redis/test_key_prefix": "its systems have other prefixes",
    "redis/test_troubles.*replica_is_reported": "a node of a cluster becomes no replica by REPLICAOF",
    "submission/test_queue.*a_prefix_separates_systems": "its systems have other prefixes",
    "rq/test_rq_3.*(with_rq_key_prefix|uses_the_key_prefix|other_keys_than)": "its systems have other prefixes",
}
"""Tests that do not apply: a pattern in their names below tests/integration or tests/features, and why."""


def why_not(test: str) -> str | None:
    """Why a test does not apply to such a node; None for one that does."""
    return next(
        (why for pattern, why in NOT_APPLYING.items() if re.search(f"(integration|features)/{pattern}", test)), None
    )


class Node(EmbeddedRedis):
    """A node that has the one slot, also after a restart."""

    key_prefix = NODE_PREFIX

    def __init__(self, *, options: dict[str, str], **more: Any) -> None:
        super().__init__(options={**options, **_OPTIONS, "cluster-port": str(free_port())}, **more)

    def start(self) -> None:
        super().start()
        with Redis.from_url(self.url) as client:
            if not client.execute_command("CLUSTER", "SLOTS"):
                client.execute_command("CLUSTER", "ADDSLOTS", key_slot(NODE_PREFIX.encode()))
            wait_until(lambda: is_well(client), "the node serves its slots")


class _Prefixed(Connection):
    """A connection of a client whose keys have the prefix."""

    def __init__(self, *, key_prefix: str, **options: Any) -> None:
        super().__init__(**options)  # type: ignore[no-untyped-call]


def node(folder: Path) -> EmbeddedRedis:
    """A node whose users may use keys and channels with the prefix only."""
    return guarded_server(folder, kind=Node, prefix=NODE_PREFIX)


def own_server(folder: Path) -> EmbeddedRedis:
    """A server for one test, without the users: a node, where the tests run on one."""
    kind = Node if PREFIX else EmbeddedRedis
    return kind(data_dir=folder, port=free_port(), options={})


def url_of(server: EmbeddedRedis) -> str:
    """The address of a server for its administrator, with the prefix of a node."""
    return completed(server.url, key_prefix=_prefix_of(server))


def client_of(server: EmbeddedRedis, *, timeout: float = 5) -> Redis:
    """A client of the administrator, from which the stores read the prefix of a node; answers are bytes."""
    options: dict[str, Any] = {"socket_timeout": timeout, "protocol": 2}
    if prefix := _prefix_of(server):
        options |= {"connection_class": _Prefixed, "key_prefix": prefix}
    return Redis(connection_pool=ConnectionPool.from_url(server.url, **options))


def _prefix_of(server: EmbeddedRedis) -> str:
    return server.key_prefix if isinstance(server, Node) else ""
