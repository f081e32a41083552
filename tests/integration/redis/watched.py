"""A master, its replicas and three sentinels, all real, on loopback."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from redis import Redis
from redis.exceptions import RedisError

from firmq.shared.child_processes import dies_with_us
from firmq.shared.http.bind import LOOPBACK
from firmq.shared.local.data_folder import DataFolder, write_secret
from firmq.shared.local.embedded_redis import EmbeddedRedis, choose_server
from tests.support.harness import free_port, wait_until

SERVICE = "main"
PASSWORD = "the store's"
SENTINEL_PASSWORD = "the sentinels'"


class Watched:
    """Servers under the eyes of three sentinels, which need a second to call one dead; the first begins as master."""

    def __init__(
        self, folder: Path, replicas: int = 1, host: str = LOOPBACK, new_port: Callable[[], int] = free_port
    ) -> None:
        self.folder = folder
        self.host = host
        self.new_port = new_port
        self.servers = [self._server(str(at), new_port()) for at in range(replicas + 1)]
        self.sentinels: list[subprocess.Popen[bytes]] = []
        self.sentinel_ports = [new_port() for _ in range(3)]

    @property
    def url(self) -> str:
        hosts = ",".join(f"{self.host}:{port}" for port in self.sentinel_ports)
        return f"redis+sentinel://{hosts}/{SERVICE}/0"

    @property
    def environment(self) -> dict[str, str]:
        return {"REDIS_URL": self.url, "REDIS_PASSWORD": PASSWORD, "REDIS_SENTINEL_PASSWORD": SENTINEL_PASSWORD}

    def start(self) -> None:
        for server in self.servers:
            server.start()
        for server in self.servers[1:]:
            with self.direct(server) as replica:
                replica.replicaof(self.host, str(self.servers[0].port))
        for at in range(len(self.sentinel_ports)):
            self.sentinels.append(self._sentinel_that_listens(at))
        wait_until(self._know_each_other, "the sentinels know the replicas and each other")

    def stop(self) -> None:
        for sentinel in self.sentinels:
            sentinel.kill()
            sentinel.wait()
        for server in self.servers:
            server.kill()

    def ask(self, *command: str) -> Any:
        """What the first sentinel that answers says."""
        for port in self.sentinel_ports:
            try:
                with self._sentinel_at(port) as client:
                    return client.execute_command("SENTINEL", *command)
            except RedisError:
                continue
        raise AssertionError("no sentinel answers")

    def about(self, name: str) -> str:
        """One word of what the first sentinel knows of the service; "" when it does not say it."""
        said = self.ask("MASTERS")[0]
        said = said if isinstance(said, dict) else dict(zip(said[::2], said[1::2], strict=True))
        return str(_text({_text(each): value for each, value in said.items()}.get(name, "")))

    @property
    def master(self) -> EmbeddedRedis:
        """Whom the sentinels name."""
        port = int(self.ask("GET-MASTER-ADDR-BY-NAME", SERVICE)[1])
        return next(server for server in self.servers if server.port == port)

    def direct(self, server: EmbeddedRedis) -> Redis:
        """A client of one of the servers, whatever it is now."""
        return Redis(self.host, server.port, password=PASSWORD, socket_timeout=5, protocol=2)

    def _sentinel_at(self, port: int) -> Redis:
        return Redis(self.host, port, password=SENTINEL_PASSWORD, socket_timeout=2, protocol=2)

    @property
    def whole(self) -> bool:
        """Whether the master rules, and has all others as replicas that are in step."""
        try:
            with self.direct(self.master) as client:
                about = client.info("replication")
        except RedisError:
            return False
        online = [each for each in about.values() if isinstance(each, dict) and each.get("state") == "online"]
        return about["role"] == "master" and len(online) == len(self.servers) - 1

    def role(self, server: EmbeddedRedis) -> str:
        try:
            with self.direct(server) as client:
                return str(client.info("replication")["role"])
        except RedisError:
            return ""

    def await_promotion(self, before: EmbeddedRedis, seconds: float = 60) -> EmbeddedRedis:
        """The new master, once it is one."""
        wait_until(
            lambda: (now := self.master) is not before and self.role(now) == "master", "a new master rules", seconds
        )
        return self.master

    def _server(self, name: str, port: int) -> EmbeddedRedis:
        folder = DataFolder(self.folder / name)
        folder.create()
        write_secret(folder.path / "redis.password", PASSWORD)
        options = {"masterauth": PASSWORD, "repl-diskless-sync-delay": "0", "repl-ping-replica-period": "1"}
        options["replica-announce-ip"] = self.host
        return EmbeddedRedis(data_dir=folder.path, host=self.host, port=port, options=options)

    def _sentinel_that_listens(self, at: int) -> subprocess.Popen[bytes]:
        """On another port if a connection of somebody's has taken the one that was free."""
        while True:
            sentinel = self._sentinel(at, self.sentinel_ports[at])
            wait_until(partial(self._listens_or_ended, at, sentinel), "a sentinel listens, or ends")
            if sentinel.poll() is None:
                return sentinel
            self.sentinel_ports[at] = self.new_port()

    def _listens_or_ended(self, at: int, sentinel: subprocess.Popen[bytes]) -> bool:
        try:
            with self._sentinel_at(self.sentinel_ports[at]) as client:
                return bool(client.ping())
        except RedisError:
            return sentinel.poll() is not None

    def _sentinel(self, at: int, port: int) -> subprocess.Popen[bytes]:
        folder = self.folder / f"sentinel-{at}"
        folder.mkdir(exist_ok=True)
        lines = [
            f"bind {self.host}",
            f"sentinel announce-ip {self.host}",
            f"port {port}",
            f"dir {folder}",
            f'requirepass "{SENTINEL_PASSWORD}"',
            f'sentinel sentinel-pass "{SENTINEL_PASSWORD}"',
            f"sentinel monitor {SERVICE} {self.host} {self.servers[0].port} 2",
            f'sentinel auth-pass {SERVICE} "{PASSWORD}"',
            f"sentinel down-after-milliseconds {SERVICE} 1000",
            f"sentinel failover-timeout {SERVICE} 6000",
        ]
        config = folder / "sentinel.conf"
        config.write_text("\n".join(lines) + "\n")
        with (folder / "log").open("wb") as log:
            return subprocess.Popen(
                [choose_server().path, config, "--sentinel"],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                preexec_fn=dies_with_us(),
            )

    def _know_each_other(self) -> bool:
        for port in self.sentinel_ports:
            try:
                with self._sentinel_at(port) as client:
                    found = client.execute_command("SENTINEL", "MASTERS")[0]
            except RedisError:
                return False
            about = found if isinstance(found, dict) else dict(zip(found[::2], found[1::2], strict=True))
            about = {str(_text(name)): _text(value) for name, value in about.items()}
            if int(about["num-slaves"]) < len(self.servers) - 1 or int(about["num-other-sentinels"]) < 2:
                return False
        return True


def _text(value: Any) -> Any:
    return value.decode() if isinstance(value, bytes) else value


@contextmanager
def watched_redis(folder: Path, replicas: int = 1) -> Iterator[Watched]:
    """As long as the block lasts."""
    watched = Watched(folder, replicas)
    try:
        watched.start()
        yield watched
    finally:
        watched.stop()
