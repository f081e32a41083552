"""The gateway on a real Redis, with task types published and no worker: its app by itself, and as processes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from flask.testing import FlaskClient
from redis import Redis

from firmq.dashboard.app import create_app as create_dashboard
from firmq.dashboard.auth.users import Users
from firmq.gateway.app import create_app
from firmq.shared.config.settings import Settings
from firmq.shared.local.embedded_redis import EmbeddedRedis
from firmq.shared.redis.client import connect
from firmq.shared.stores.task_types import TaskType, TaskTypes
from tests.integration.dashboard.conftest import Browser
from tests.integration.gateway.driving import Gateway
from tests.integration.gateway.test_server import Running, start
from tests.support import one_slot
from tests.support.harness import System, running_system

TYPES = (
    TaskType(name="process", schema={}, description="Takes anything."),
    TaskType(name="calculate", schema={"anyOf": [{"type": "integer"}, {"type": "number"}, {"type": "string"}]}),
    TaskType(
        name="resize",
        schema={
            "type": "object",
            "properties": {
                "url": {"type": "string"},
                "sizes": {"type": "array", "items": {"type": "integer", "minimum": 1}},
            },
            "required": ["url"],
            "additionalProperties": False,
        },
        retry={"max_retries": 7},
    ),
)

MakeGateway = Callable[..., Gateway]


@pytest.fixture
def make_gateway(redis_client: Redis, redis_url: str) -> Iterator[MakeGateway]:
    """Builds gateways with settings of a test's choice."""
    clients: list[Redis] = []

    def make(types: tuple[TaskType, ...] = TYPES, waiters: int = 8, **settings: Any) -> Gateway:
        TaskTypes(redis_client).publish(types)
        redis = connect(redis_url)
        clients.append(redis)
        return Gateway(create_app(Settings(**settings), redis, waiters=waiters), redis_client)

    yield make
    for client in clients:
        client.close()


@pytest.fixture
def gateway(make_gateway: MakeGateway) -> Gateway:
    """A gateway with the default settings."""
    return make_gateway()


@pytest.fixture
def http(gateway: Gateway) -> FlaskClient:
    """Requests to a gateway with the default settings."""
    return gateway.http


@pytest.fixture(scope="module")
def lasting(redis_server: EmbeddedRedis, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A gateway for all tests that leave it as it was."""
    redis_server.start()
    redis = one_slot.client_of(redis_server)
    with redis, running_system(redis, one_slot.url_of(redis_server), tmp_path_factory.mktemp("gateway")) as system:
        yield start(system)


@pytest.fixture
def running(lasting: Running, redis_client: Redis) -> Running:
    """A gateway that serves, and must go on doing so."""
    TaskTypes(redis_client).publish([TaskType(name="process", schema={})])
    return lasting


@pytest.fixture
def browser(system: System) -> Iterator[Browser]:
    """A dashboard on the same Redis."""
    redis = connect(system.url)
    app = create_dashboard(Settings(), redis, Users.load_or_exit(Settings()))
    yield Browser(app, app.test_client())
    redis.close()
