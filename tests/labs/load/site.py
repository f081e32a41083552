"""Where the load works: every part of the product as a process of its own, and a Redis that reaches a steady state."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from redis import Redis

from firmq.shared.local.embedded_redis import EmbeddedRedis
from tests.labs.faults.clients import call
from tests.labs.load.housekeeper import RETENTION
from tests.support.harness import System, free_port, running_system, wait_until

KEPT = f"{RETENTION.total_seconds():g}"
ENVIRONMENT = {
    "TASK_MODULES": "tests.labs.load.handlers",
    "INITIAL_RETRY_DELAY": "0.5",
    # What ended goes soon, or Redis would grow for a day by design.
    "RETENTION_COMPLETED": KEPT,
    "RETENTION_FAILED": KEPT,
    "IDEMPOTENCY_TTL": "60",
    "HOUSEKEEPER_TTL_INTERVAL": "1",
    "HOUSEKEEPER_DISTRIBUTED_EXECUTION_ENABLED": "true",
    # As they are by default; other tests are in a hurry.
    "LEASE_TIME": "9",
    "HOUSEKEEPER_UNLOCK_INTERVAL": "0.25",
    "HOUSEKEEPER_TIMEOUT_INTERVAL": "1",
    "HOUSEKEEPER_RECOVERY_INTERVAL": "5",
    "HOUSEKEEPER_RECOVERY_GRACE": "10",
    "WORKER_EXECUTORS": "0",
    "LOG_LEVEL": "WARNING",
}
_PARTS = {
    "gateway": ("gateway", "GATEWAY_PORT"),
    "dashboard": ("dashboard", "DASHBOARD_PORT"),
    **{f"worker {n}": ("worker", "WORKER_METRICS_PORT") for n in (1, 2)},
    **{f"housekeeper {n}": ("tests.labs.load.housekeeper", "HOUSEKEEPER_METRICS_PORT") for n in (1, 2, 3)},
}
"""What each part is started by, and where it is told its port."""


@dataclass
class Site:
    """A gateway, a dashboard, two workers, three housekeepers and a Redis."""

    system: System
    redis_pid: int
    folder: Path
    ports: dict[str, int] = field(default_factory=dict)
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    @property
    def redis(self) -> Redis:
        return self.system.redis

    def address(self, name: str) -> str:
        return f"127.0.0.1:{self.ports[name]}"

    def named(self, kind: str) -> list[str]:
        """The parts of one kind."""
        return [name for name in self.ports if name.startswith(kind)]

    def start(self, parts: Sequence[str]) -> None:
        """These up, and the gateway knows the types."""
        for name in parts:
            module, setting = _PARTS[name]
            self.ports[name] = free_port()
            environment = {setting: str(self.ports[name]), "HOUSEKEEPER_DISTRIBUTED_EXECUTION_INSTANCE_ID": name}
            self.processes[name] = self.system.start(module, **environment)
        wait_until(self._ready, f"everything is ready\n{self.system.logs()}", 90)

    def _ready(self) -> bool:
        assert all(each.poll() is None for each in self.processes.values()), self.system.logs()
        health = (call(self.address(name), "GET", "/health/ready").status == 200 for name in self.ports)
        known = partial(call, self.address("gateway"), "GET")
        return all(health) and bool(known("/types").body.get("items")) and self._crews_are_there()

    def _crews_are_there(self) -> bool:
        return len([each for each in self.system.workers.all() if each.executors]) == len(self.named("worker"))

    def stop(self, kind: str) -> None:
        """Ends the parts of one kind in order."""
        for name in self.named(kind):
            self.processes[name].terminate()
        for name in self.named(kind):
            self.processes[name].wait(60)


@contextmanager
def site(folder: Path, parts: Sequence[str] = tuple(_PARTS), **environment: str) -> Iterator[Site]:
    """These parts (all of them, if none are named) up, and gone afterwards."""
    with (
        EmbeddedRedis(data_dir=folder / "redis") as server,
        Redis.from_url(server.url, socket_timeout=10, protocol=2) as redis,
        running_system(
            redis, server.url, folder, **{**ENVIRONMENT, "LOAD_FOLDER": str(folder), **environment}
        ) as system,
    ):
        assert server.pid
        system.as_shipped = True
        found = Site(system, server.pid, folder)
        found.start(parts)
        yield found
