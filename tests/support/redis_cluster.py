"""A real cluster of three masters, each with a replica, on loopback."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from redis import Redis
from redis.crc import key_slot

from firmq.shared.local.data_folder import write_secret
from firmq.shared.local.embedded_redis import EmbeddedRedis
from tests.support.harness import wait_until

NODES = 3
PASSWORD = "cluster"  # of a server of the tests, on loopback
OPTIONS = {
    "cluster-enabled": "yes",
    "cluster-config-file": "nodes.conf",
    "cluster-node-timeout": "1500",
    "cluster-require-full-coverage": "no",
    "cluster-allow-reads-when-down": "no",
    "masterauth": PASSWORD,
}
_LOWEST, _HIGHEST = 10_000, 55_000
"""The bus of a node has its port + 10000."""


@dataclass
class Cluster:
    """The nodes: masters first, then their replicas in the same order."""

    nodes: list[EmbeddedRedis]

    @property
    def masters(self) -> list[EmbeddedRedis]:
        return self.nodes[:NODES]

    def url(self, partitions: int = 3) -> str:
        hosts = ",".join(f"{each.host}:{each.port}" for each in self.masters)
        return f"redis+cluster://default:{PASSWORD}@{hosts}?partitions={partitions}"

    def client(self, node: EmbeddedRedis) -> Redis:
        return Redis(host=node.host, port=node.port, password=PASSWORD, protocol=2, socket_timeout=5)

    def master_of(self, partition: int) -> EmbeddedRedis:
        """The node that has the keys of a partition now."""
        slot = key_slot(f"{{fq{partition}}}:".encode())
        for node in self.nodes:
            if not node.running:
                continue
            with self.client(node) as client:
                for line in _nodes(client).splitlines():
                    _, address, flags, _, _, _, _, _, *slots = line.split()
                    if "master" in flags and "fail" not in flags and any(_covers(each, slot) for each in slots):
                        port = int(address.partition("@")[0].rpartition(":")[2])
                        return next(each for each in self.nodes if each.port == port)
        raise AssertionError(f"no node has slot {slot}")

    def flush(self) -> None:
        for node in self.nodes:
            with self.client(node) as client:
                if client.role()[0] == b"master":
                    client.flushall()


def _nodes(client: Redis) -> str:
    said = client.connection_pool.get_connection()
    try:
        said.send_command("CLUSTER", "NODES")
        answer = said.read_response()
    finally:
        client.connection_pool.release(said)
    return answer.decode() if isinstance(answer, bytes) else str(answer)


def _covers(slots: str, slot: int) -> bool:
    if slots.startswith("["):
        return False
    first, _, last = slots.partition("-")
    return int(first) <= slot <= int(last or first)


@contextmanager
def running_cluster(folder: Path, *, replicas: bool = True) -> Iterator[Cluster]:
    """A cluster whose slots are all served."""
    with ExitStack() as stack:
        many = NODES * 2 if replicas else NODES
        nodes = [stack.enter_context(_node(folder / f"node-{at}")) for at in range(many)]
        cluster = Cluster(nodes)
        clients = [stack.enter_context(cluster.client(node)) for node in nodes]
        for at, client in enumerate(clients[:NODES]):
            client.execute_command("CLUSTER", "ADDSLOTSRANGE", at * 16384 // NODES, (at + 1) * 16384 // NODES - 1)
            client.execute_command("CLUSTER", "SET-CONFIG-EPOCH", at + 1)
        for node in nodes[1:]:
            clients[0].execute_command("CLUSTER", "MEET", nodes[0].host, node.port)
        wait_until(
            lambda: all(_nodes(each).count("connected") == many for each in clients), "the nodes know each other"
        )
        for at, client in enumerate(clients[NODES:]):
            client.execute_command("CLUSTER", "REPLICATE", _own_id(clients[at]))
        wait_until(lambda: all(is_well(each) for each in clients), "the cluster is well")
        if replicas:
            wait_until(lambda: all(_linked(each) for each in clients[NODES:]), "the replicas follow")
        time.sleep(0.2)
        yield cluster


def _node(folder: Path) -> EmbeddedRedis:
    folder.mkdir(mode=0o700)
    write_secret(folder / "redis.password", PASSWORD)
    return EmbeddedRedis(data_dir=folder, options=OPTIONS)


def _own_id(client: Redis) -> str:
    return next(line.split()[0] for line in _nodes(client).splitlines() if "myself" in line)


def is_well(client: Redis) -> bool:
    """Tells whether all slots are served, as this node sees it."""
    said = client.execute_command("CLUSTER", "INFO")
    if isinstance(said, dict):
        return bool(said.get("cluster_state") == "ok")
    return b"cluster_state:ok" in said


def _linked(client: Redis) -> bool:
    return client.info("replication").get("master_link_status") == "up"
