"""Several real housekeepers on one Redis, and what they show to Prometheus."""

from __future__ import annotations

import signal
import subprocess
from dataclasses import dataclass, field

from tests.support.harness import Samples, System, free_port, scrape
from tests.support.relay import SpanForwarder

QUICK = {
    "HOUSEKEEPER_DISTRIBUTED_EXECUTION_ENABLED": "true",
    "HOUSEKEEPER_DISTRIBUTED_EXECUTION_LOCK_TTL": "2",
    "HOUSEKEEPER_LEADER_LEASE": "3",
    "HOUSEKEEPER_METRICS_INTERVAL": "0.2",
    "HOUSEKEEPER_SCHEDULES_INTERVAL": "0.2",
    "LOG_LEVEL": "DEBUG",
}


@dataclass
class Member:
    """One housekeeper; it keeps its name and port when it is started again."""

    name: str
    system: System
    environment: dict[str, str]
    port: int = field(default_factory=free_port)
    process: subprocess.Popen[bytes] | None = None
    frozen: bool = False

    def __post_init__(self) -> None:
        self.relay = SpanForwarder(self.system.url)

    def start(self) -> None:
        self.process = self.system.start_housekeeper(
            **{
                **QUICK,
                **self.environment,
                "HOUSEKEEPER_DISTRIBUTED_EXECUTION_INSTANCE_ID": self.name,
                "HOUSEKEEPER_METRICS_PORT": str(self.port),
                "REDIS_URL": self.relay.url,
            }
        )

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def freeze(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGSTOP)
        self.frozen = True

    def thaw(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGCONT)
        self.frozen = False

    def scrape(self, timeout: float = 0.5) -> Samples:
        """What it shows; nothing when it does not answer."""
        return scrape(self.port, timeout)

    def value(self, metric: str, /, **labels: str) -> float:
        return self.scrape().get((metric, tuple(sorted(labels.items()))), 0.0)

    def leads(self) -> bool:
        ended = self.process.poll() if self.process else None
        assert ended in (None, 0, -signal.SIGKILL), f"{self.name} ended by itself ({ended})\n{self.system.logs()}"
        return self.value("firmq_housekeeper_leader") == 1


GAUGES = ("tasks_in_dlq_total", "firmq_pending_tasks", "firmq_oldest_pending_age_seconds", "firmq_tasks")


def shows_gauges(samples: Samples) -> bool:
    """Whether gauges of the whole system are among them."""
    return any(name in GAUGES for name, _ in samples)


class Cluster:
    """Housekeepers hk-1, hk-2, ..."""

    def __init__(self, system: System, size: int = 3, **environment: str) -> None:
        self.members = [Member(f"hk-{number + 1}", system, environment) for number in range(size)]

    def start(self) -> None:
        for member in self.members:
            member.start()

    def leader(self) -> Member | None:
        return next((member for member in self.members if not member.frozen and member.leads()), None)

    def close(self) -> None:
        for member in self.members:
            member.relay.stop()
