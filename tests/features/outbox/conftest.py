"""A database with an outbox, and a queue that its relay sends to."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from redis import Redis
from sqlalchemy import Engine

from firmq.outbox.relay import Relay
from firmq.outbox.senders import DirectSender
from firmq.outbox.sqlalchemy import SqlTable
from firmq.shared.stores.task_types import TaskType, TaskTypes
from tests.integration.conftest import store, system
from tests.integration.gateway.conftest import gateway, make_gateway
from tests.support.outbox import DATABASES, MYSQL, empty_database
from tests.support.postgresql import PostgreSQL

__all__ = ["gateway", "make_gateway", "store", "system"]


@pytest.fixture(params=DATABASES)
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Engine]:
    urls = {"sqlite": f"sqlite:///{tmp_path / 'shop.db'}", "mysql": MYSQL}
    if request.param == "postgresql":
        server: PostgreSQL = request.getfixturevalue("postgresql")
        server.create("outbox")
        urls["postgresql"] = f"postgresql+psycopg://postgres@/outbox?host={server.folder}"
    yield from empty_database(urls[request.param])


@pytest.fixture
def table(engine: Engine) -> SqlTable:
    table = SqlTable(engine)
    table.create()
    return table


@pytest.fixture
def sender(redis_client: Redis, redis_url: str) -> Iterator[DirectSender]:
    schema = {"type": "object", "properties": {"order": {"type": "integer"}}, "required": ["order"]}
    TaskTypes(redis_client).publish(
        [TaskType(name="outbox-invoice", schema=schema), TaskType(name="process", schema={})]
    )
    sender = DirectSender(redis_url)
    yield sender
    sender.close()


@pytest.fixture
def relay(table: SqlTable, sender: DirectSender) -> Relay:
    return Relay(table, sender)
