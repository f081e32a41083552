"""Makes the worker of `firmq_worker` use the test databases, which Django created in the test's process.

A worker imports this module before all handlers, with the addresses of the databases in its environment.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from contextlib import suppress

import pytest

VARIABLE = "FIRMQ_TEST_DATABASES"
_ADDRESS = ("NAME", "HOST", "PORT", "USER")
_NOT_SET_UP = """\
firmq_worker would use the development database, because Django is not set up in the process of the tests: install \
pytest-django"""
_IN_MEMORY = """\
firmq_worker cannot use the database {alias!r}, which is in the memory of the test's process: give its entry in \
DATABASES a file for tests, such as "TEST": {{"NAME": BASE_DIR / "test.sqlite3"}}"""
_IN_TRANSACTION = """\
firmq_worker does not see rows written in a transaction: mark the test with \
@pytest.mark.django_db(transaction=True), or use the fixture transactional_db in place of db"""
_CHANGED = "the databases of Django have changed since firmq_worker started: set them up once for each session"


def set_up(request: pytest.FixtureRequest) -> Mapping[str, str]:
    """Returns the environment of a worker, once the databases of the tests are there. Raises pytest.UsageError."""
    if not _is_configured():
        if "DJANGO_SETTINGS_MODULE" in os.environ:
            raise pytest.UsageError(_NOT_SET_UP)
        return {}
    with suppress(pytest.FixtureLookupError):  # without pytest-django the test set them up
        request.getfixturevalue("django_db_setup")
    return {VARIABLE: _addresses()}


def check(request: pytest.FixtureRequest, environment: Mapping[str, str]) -> None:
    """Raises pytest.UsageError if a worker with this environment does not see the test's rows."""
    if not _is_configured():
        return
    if environment.get(VARIABLE) != _addresses():
        raise pytest.UsageError(_CHANGED)
    from django.db import connections

    if any(each.in_atomic_block for each in connections.all(initialized_only=True)):
        raise pytest.UsageError(_IN_TRANSACTION)
    for each in connections.all() if _may_use_databases(request) else ():
        if getattr(each, "is_in_memory_db", bool)():  # of SQLite
            raise pytest.UsageError(_IN_MEMORY.format(alias=each.alias))


def _may_use_databases(request: pytest.FixtureRequest) -> bool:
    """Returns whether a test may use databases: pytest-django allows those that request it."""
    asks = request.node.get_closest_marker("django_db") or {"db", "transactional_db"} & {*request.fixturenames}
    return bool(asks) or "pytest_django" not in sys.modules


def _is_configured() -> bool:
    return "django.conf" in sys.modules and sys.modules["django.conf"].settings.configured


def _addresses() -> str:
    """Returns the address of each database as JSON."""
    from django.db import connections

    return json.dumps(
        {each.alias: {name: str(each.settings_dict.get(name) or "") for name in _ADDRESS} for each in connections.all()}
    )


if VARIABLE in os.environ:  # this is a worker
    import django
    from django.db import connections as ours

    django.setup()
    for alias, address in json.loads(os.environ[VARIABLE]).items():
        ours.settings[alias].update(address)
