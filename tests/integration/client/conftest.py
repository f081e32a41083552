"""A gateway, a worker and a housekeeper that run, and a client of them."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from typing import cast
from uuid import uuid4

import pytest

from firmq.shared.client import Client, Unreachable
from firmq.shared.local.embedded_redis import EmbeddedRedis
from tests.support import one_slot
from tests.support.blocking import BlockingClient
from tests.support.harness import System, free_port, running_system, wait_until


@dataclass(slots=True)
class Running:
    """What runs."""

    system: System
    url: str
    gateway: subprocess.Popen[bytes]


def start_gateway(system: System, port: int, **environment: str) -> subprocess.Popen[bytes]:
    """A gateway that answers; one process, so that all requests meet there."""
    process = system.start("gateway", GATEWAY_PORT=str(port), GATEWAY_PROCESSES="1", **environment)
    with Client(f"http://127.0.0.1:{port}", patience=0) as client:
        wait_until(lambda: _answers(client), "the gateway answers")
    return process


def _answers(client: Client) -> bool:
    try:
        return client.transport.ask("GET", "/health/live").status == 200
    except Unreachable:
        return False


@pytest.fixture(scope="module")
def running(redis_server: EmbeddedRedis, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """Everything up, for all tests of a module."""
    redis_server.start()
    with one_slot.client_of(redis_server) as redis:
        redis.flushall()
        with running_system(redis, one_slot.url_of(redis_server), tmp_path_factory.mktemp("client")) as system:
            system.start_worker(WORKER_EXECUTORS="2")
            system.start_housekeeper()
            port = free_port()
            yield Running(system, f"http://127.0.0.1:{port}", start_gateway(system, port))


@pytest.fixture(params=[Client, BlockingClient], ids=["threads", "asyncio"])
def client_class(request: pytest.FixtureRequest) -> type[Client]:
    """Each of the two clients; that for asyncio with the methods of the other."""
    return cast("type[Client]", request.param)


@pytest.fixture
def client(running: Running, client_class: type[Client]) -> Iterator[Client]:
    """A client of the running system."""
    with client_class(running.url) as client:
        yield client


@pytest.fixture
def tag() -> str:
    """A tag that no other test uses."""
    return uuid4().hex
