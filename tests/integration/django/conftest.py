"""A Django project in this process, and a gateway, a worker and a housekeeper that run its tasks."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from taskqueue.shared.local.embedded_redis import EmbeddedRedis
from tests.integration.client.conftest import Running, start_gateway
from tests.support import one_slot
from tests.support.harness import free_port, running_system

SETTINGS = "tests.support.django_project.settings"


@pytest.fixture(scope="session")
def django_project(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The project, set up in this process; the file of its database."""
    import django
    from django.core.management import call_command

    database = tmp_path_factory.mktemp("django") / "database.sqlite3"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DJANGO_SETTINGS_MODULE", SETTINGS)
        patch.setenv("DJANGO_DATABASE", str(database))
        django.setup()
        call_command("migrate", verbosity=0)
        yield database


@pytest.fixture(scope="module")
def running(
    django_project: Path, redis_server: EmbeddedRedis, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Running]:
    """Everything up, for all tests of a module."""
    redis_server.start()
    environment = {
        "DJANGO_SETTINGS_MODULE": SETTINGS,
        "DJANGO_DATABASE": str(django_project),
        "TASK_MODULES": "taskqueue.django.handlers",
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
                patch.setenv("TASKQUEUE_URL", url)
                assert os.environ["TASKQUEUE_URL"] == url
                yield Running(system, url, gateway)
