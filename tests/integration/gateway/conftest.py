"""The gateway's app on a real Redis, with three task types published and no worker."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from flask.testing import FlaskClient
from redis import Redis

from gateway.app import create_app
from shared.redis_client import connect
from shared.settings import Settings
from shared.task_types import TaskType, TaskTypes
from tests.integration.gateway.driving import Gateway

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
