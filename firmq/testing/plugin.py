"""The plugin for pytest: fixtures that run submitted tasks, in the test's process or on a real system.

pytest loads it at its start, by the package's entry point, so that it imports its dependencies in the fixtures.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from firmq import Client, LocalClient
    from firmq.testing.system import SystemForTests


def pytest_addoption(parser: pytest.Parser) -> None:
    """Adds the option of the configuration."""
    text = "modules with the handlers of firmq_eager and firmq_worker (default: TASK_MODULES)"
    parser.addini("firmq_modules", text, type="args")


@pytest.fixture
def firmq_eager(pytestconfig: pytest.Config) -> Iterator[LocalClient]:
    """Runs each task in the test's process when it is submitted; `tasks()` and `get` show the submitted tasks."""
    from firmq import LocalClient, use_client

    client = LocalClient(pytestconfig.getini("firmq_modules") or None)
    before = use_client(client)
    yield client
    use_client(*before)


@pytest.fixture
def firmq_worker(
    _firmq_system: SystemForTests, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Client]:
    """Yields a client of a gateway with a worker and a housekeeper, which starts and ends each test without tasks."""
    from firmq import Client, use_client
    from firmq.testing import django

    django.check(request, _firmq_system.environment)
    monkeypatch.setenv("FIRMQ_URL", _firmq_system.url)
    monkeypatch.delenv("FIRMQ_API_KEY", raising=False)
    with Client() as client:
        before = use_client(client)
        yield client
        use_client(*before)
        _firmq_system.reset(client)


@pytest.fixture(scope="session")
def _firmq_system(
    request: pytest.FixtureRequest, pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SystemForTests]:
    from firmq.shared.errors import needs
    from firmq.testing import django

    with needs("firmq_worker", extra="local"):
        from firmq.testing.system import SystemForTests

    modules = ",".join(pytestconfig.getini("firmq_modules")) or os.environ.get("TASK_MODULES")
    if not modules:
        raise pytest.UsageError(
            "firmq_worker does not know the modules with handlers: "
            "set firmq_modules in the configuration of pytest, or TASK_MODULES"
        )
    if environment := django.set_up(request):
        modules = f"{django.__name__},{modules}"
    with SystemForTests(tmp_path_factory.mktemp("firmq"), modules, environment) as system:
        yield system
