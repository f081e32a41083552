"""A Django project in this process, and a gateway, a worker and a housekeeper that run its tasks."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator

import pytest

from firmq.shared.local.embedded_redis import EmbeddedRedis
from tests.integration.client.conftest import Running, start_gateway
from tests.support import one_slot
from tests.support.harness import free_port, running_system
from tests.support.postgresql import PostgreSQL

SETTINGS = "tests.support.django_project.settings"


@pytest.fixture(scope="session", params=["sqlite", "postgresql"])
def django_project(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The project, set up in this process; its database, as DJANGO_DATABASE."""
    import django
    from django.core.management import call_command

    if request.param == "sqlite":
        database = str(tmp_path_factory.mktemp("django") / "database.sqlite3")
    else:
        server: PostgreSQL = request.getfixturevalue("postgresql")
        server.create("shop")
        database = f"{server.folder} shop"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DJANGO_SETTINGS_MODULE", SETTINGS)
        patch.setenv("DJANGO_DATABASE", database)
        django.setup()
        _use(database)
        call_command("migrate", verbosity=0)
        yield database
        _use(":memory:")


def _use(database: str) -> None:
    """Replaces the connections to the database in this thread, and in that of coroutines."""
    from asgiref.sync import sync_to_async
    from django.conf import settings
    from django.db import connections

    from tests.support.django_project.settings import database as entry

    def forget() -> None:
        connections["default"].close()
        del connections["default"]

    forget()
    asyncio.run(sync_to_async(forget)())
    settings.DATABASES["default"] = entry(database)
    connections.configure_settings(settings.DATABASES)


@pytest.fixture(scope="module")
def running(
    django_project: str, redis_server: EmbeddedRedis, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Running]:
    """Everything up, for all tests of a module."""
    redis_server.start()
    environment = {
        "DJANGO_SETTINGS_MODULE": SETTINGS,
        "DJANGO_DATABASE": django_project,
        "TASK_MODULES": "firmq.django.handlers",
    }
    with one_slot.client_of(redis_server) as redis:
        redis.flushall()
        with running_system(
            redis, one_slot.url_of(redis_server), tmp_path_factory.mktemp("django"), **environment
        ) as system:
            system.start_worker(WORKER_EXECUTORS="1", MAX_RETRIES="1")
            system.start_housekeeper()
            port = free_port()
            url = f"http://127.0.0.1:{port}"
            gateway = start_gateway(system, port)
            with pytest.MonkeyPatch.context() as patch:
                patch.setenv("FIRMQ_URL", url)
                assert os.environ["FIRMQ_URL"] == url
                yield Running(system, url, gateway)
