"""Finds the node of a Redis or Valkey Cluster that has the keys of a store.

All keys of a store have one hash tag, so they are in one slot, and its scripts run on the master of that slot as on
a server of their own. The connections of a store go to that node and to no other: redis-py's client for clusters would
route each command by its keys, and scripts here name none.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from redis import Redis
from redis.connection import ConnectionPool
from redis.crc import key_slot
from redis.exceptions import ConnectionError, RedisError

from firmq.shared.redis.refusing import Refusing

PATIENCE = 0.4
"""Seconds that a node may take to answer."""
INTERVAL, LOOKS_AGAIN = 1.0, 0.5
"""Seconds between two looks at the slots, and for which an answer is shared by all stores of a process."""


class ClusterNodes:
    """The nodes of a cluster, as they describe it themselves.

    A node that was cut off still names itself as the master of its slots, so all that are known are asked, and for each
    slot the claim with the highest epoch counts.
    """

    def __init__(self, nodes: Sequence[tuple[str, int]], options: Mapping[str, Any]) -> None:
        self._options = options
        self._clients: dict[tuple[str, int], Redis] = {each: self._client(*each) for each in nodes}
        self._lock = threading.Lock()
        self._asked_at = float("-inf")
        self._found: list[tuple[int, range, tuple[str, int]]] = []

    def master_of(self, slot: int, *, fresh: bool) -> tuple[int, str, int]:
        """Returns the epoch, host and port of the master of a slot, as known now or, when not `fresh`, a moment ago.

        Raises ConnectionError when no node knows it.
        """
        with self._lock:
            if fresh or time.monotonic() - self._asked_at > LOOKS_AGAIN:
                self._found = self._ask_all()
                self._asked_at = time.monotonic()
            claims = [(epoch, *address) for epoch, slots, address in self._found if slot in slots]
        if not claims:
            raise ConnectionError(f"no node of the cluster has slot {slot}: check CLUSTER INFO")
        return max(claims)

    def _ask_all(self) -> list[tuple[int, range, tuple[str, int]]]:
        found: list[tuple[int, range, tuple[str, int]]] = []
        troubles: list[str] = []
        for address, client in list(self._clients.items()):
            try:
                said = client.execute_command("CLUSTER", "NODES")
            except RedisError as error:
                troubles.append(str(error))
                continue
            for epoch, slots, master in _masters(_text(said), address[0]):
                found += [(epoch, each, master) for each in slots]
                if master not in self._clients:
                    self._clients[master] = self._client(*master)
        if not found:
            raise ConnectionError(f"no node of the cluster answers: {'; '.join(troubles)}")
        return found

    def _client(self, host: str, port: int) -> Redis:
        pool = ConnectionPool(
            host=host,
            port=port,
            socket_timeout=PATIENCE,
            socket_connect_timeout=PATIENCE,
            socket_keepalive=True,
            protocol=2,
            **self._options,
        )
        return Redis(connection_pool=pool)


def _text(said: Any) -> str:
    return said.decode() if isinstance(said, bytes) else str(said)


def _masters(said: str, asked: str) -> Iterator[tuple[int, list[range], tuple[str, int]]]:
    """Yields the epoch, slots and address of each master that answers, out of the answer of CLUSTER NODES."""
    for line in said.splitlines():
        _, address, flags, _, _, _, epoch, _, *slots = line.split()
        if "master" not in flags.split(",") or "fail" in flags.split(","):
            continue
        host, _, port = address.partition(",")[0].partition("@")[0].rpartition(":")
        ranges = [each.partition("-") for each in slots if not each.startswith("[")]
        yield int(epoch), [range(int(a), int(b or a) + 1) for a, _, b in ranges], (host or asked, int(port))


class ClusterSlot:
    """Which node of a cluster has the keys of one store; takes the place of `Sentinels` for its connections."""

    def __init__(self, nodes: ClusterNodes, key_prefix: str) -> None:
        self.nodes = nodes
        self.slot = key_slot(f"{key_prefix}:".encode())
        self.master: tuple[str, int] | None = None
        self._epoch = -1
        self._changing = threading.Lock()
        self._watchers: dict[int, threading.Thread] = {}

    def find_master(self) -> tuple[str, int]:
        """Returns the address of the master. Raises ConnectionError when no node knows it."""
        watcher = threading.Thread(target=self._watch, name=f"slot {self.slot}", daemon=True)
        if self._watchers.setdefault(os.getpid(), watcher) is watcher:
            self._changing = threading.Lock()  # a thread of the parent may have held it at the fork
            watcher.start()
        _, host, port = self.nodes.master_of(self.slot, fresh=self.master is None)
        return host, port

    def settle(self, found: tuple[str, int], known: tuple[str, int] | None) -> None:
        """Makes the master of a new connection the current one; raises Refusing when another one is known since."""
        with self._changing:
            if self.master not in (known, found):
                raise Refusing(f"the slot has moved from {found[0]}:{found[1]}")
            self.master = found

    def _watch(self) -> None:
        while True:
            time.sleep(INTERVAL)
            with suppress(RedisError):
                epoch, host, port = self.nodes.master_of(self.slot, fresh=False)
                if epoch > self._epoch >= 0:
                    with self._changing:
                        self.master = (host, port)
                self._epoch = max(epoch, self._epoch)
