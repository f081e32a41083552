"""Systems with three partitions: on one server by its databases, or on three servers."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from redis import Redis
from werkzeug.test import Client

from firmq.gateway.features.partitions.feature import create_router
from firmq.gateway.features.partitions.router import Router
from firmq.shared.config.settings import Settings
from firmq.shared.local.embedded_redis import EmbeddedRedis
from firmq.shared.redis.client import connect
from firmq.shared.redis.scripts import Scripts
from firmq.shared.registry import FEATURES
from firmq.shared.stores.task_types import TaskType, TaskTypes
from tests.support.harness import System, running_system
from tests.support.redis_cluster import Cluster, running_cluster

collect_ignore = [
    f"test_{name}.py" for name in ("alerts", "bulk", "durable", "rq", "timeline", "payloads") if name not in FEATURES
]
"""Tests of other features with partitions."""
TYPES = (TaskType(name="process", schema={}), TaskType(name="mail", schema={}))


@dataclass
class Routed:
    """A gateway with three partitions."""

    settings: Settings
    router: Router
    http: Client
    scripts: dict[int, Scripts]

    def post(self, path: str, body: Any = None, **headers: str) -> Any:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return self.http.post(path, json=body or {}, headers=named)

    def get(self, path: str) -> Any:
        found: Any = self.http.get(path).json
        return found

    def submit(self, **body: Any) -> str:
        answer = self.post("/tasks", {"type": "process", "data": 1, **body})
        assert answer.status_code == 202, answer.text
        return str(answer.json["task_id"])

    def submit_to(self, number: int, **body: Any) -> str:
        """Submits a task that goes to this partition, as the others are away."""
        for each in self.router.members.all.values():
            each.answers = each.number == number
        try:
            return self.submit(**body)
        finally:
            for each in self.router.members.all.values():
                each.answers = True


def databases(url: str, numbers: range = range(3)) -> tuple[str, ...]:
    """The addresses of databases of one server."""
    return tuple(f"{url.removesuffix('/0')}/{number}" for number in numbers)


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with running_cluster(tmp_path_factory.mktemp("cluster")) as running:
        yield running


@pytest.fixture
def three(redis_client: Redis, redis_url: str, request: pytest.FixtureRequest) -> Settings:
    """The settings of three empty partitions: of databases of one server, or of a cluster with TEST_CLUSTER=1."""
    if os.environ.get("TEST_CLUSTER") != "1":
        return Settings.model_validate(
            {"redis_partitions": databases(redis_url), "housekeeper_distributed_execution_enabled": False}
        )
    cluster: Cluster = request.getfixturevalue("cluster")
    cluster.flush()
    return Settings(redis_url=cluster.url(), housekeeper_distributed_execution_enabled=False)


@pytest.fixture
def routed(three: Settings, monkeypatch: pytest.MonkeyPatch) -> Iterator[Routed]:
    monkeypatch.setattr("firmq.gateway.features.partitions.members.Members.watch", lambda members: None)
    with ExitStack() as stack:
        scripts = {number: Scripts(stack.enter_context(connect(own.store_url))) for number, own in three.stores.items()}
        for each in scripts.values():
            TaskTypes(each.redis).publish(TYPES)
        router = create_router(three)
        yield Routed(three, router, Client(router), scripts)


@dataclass
class Servers:
    """Three servers, and a system with a partition on each."""

    servers: list[EmbeddedRedis]
    system: System

    def kill(self, number: int) -> None:
        self.servers[number].kill()

    def start(self, number: int) -> None:
        self.servers[number].start()
        time.sleep(0.1)


@pytest.fixture
def three_servers(tmp_path: Path) -> Iterator[Servers]:
    with ExitStack() as stack:
        servers = [stack.enter_context(EmbeddedRedis(data_dir=tmp_path / f"redis-{at}")) for at in range(3)]
        client = stack.enter_context(connect(servers[0].url))
        (tmp_path / "logs").mkdir()
        addresses = ",".join(each.url for each in servers)
        system = stack.enter_context(
            running_system(client, "", tmp_path / "logs", REDIS_URL="", REDIS_PARTITIONS=addresses)
        )
        yield Servers(servers, system)
