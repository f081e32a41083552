"""The fixtures of the pytest plugin in a Django project: a worker uses the databases of the tests, or refuses."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from tests.integration.testing.test_plugin import run
from tests.support.postgresql import PostgreSQL

SETTINGS = """
import os

HOST = os.environ.get("SHOP_HOST")
POSTGRESQL = {"ENGINE": "django.db.backends.postgresql", "NAME": "shop", "HOST": HOST, "USER": "postgres"}
SQLITE = {"ENGINE": "django.db.backends.sqlite3", "NAME": os.path.abspath("shop.sqlite3")}
if "SHOP_MEMORY" not in os.environ:
    SQLITE["TEST"] = {"NAME": os.path.abspath("test.sqlite3")}
DATABASES = {"default": SQLITE}
if HOST:
    DATABASES = {
        "default": POSTGRESQL,
        "replica": {**POSTGRESQL, "TEST": {"MIRROR": "default"}},
        "orders": {**POSTGRESQL, "NAME": "orders"},
    }
INSTALLED_APPS = ["django.contrib.auth", "django.contrib.contenttypes"]
"""
TASKS = """
import django

django.setup()

from django.contrib.auth.models import User
from django.db import connections

from firmq import task


@task("add-user")
def add_user(name: str, database: str) -> str:
    User.objects.using(database).create(username=name)
    return connections[database].settings_dict["NAME"]
"""
TESTS = """
import os

import pytest
from django.contrib.auth.models import User
from django.db import connections

from shop.tasks import add_user

MEMBER = os.environ.get("PYTEST_XDIST_WORKER", "")


@pytest.mark.django_db(transaction=True, databases="__all__")
@pytest.mark.parametrize("alias", [each for each in connections if each != "replica"])
@pytest.mark.parametrize("number", [1, 2])
def test_a_row_is_written_where_the_test_reads(firmq_worker, alias, number):
    name = firmq_worker.result(add_user.submit("ann", alias).task_id, timeout=120)
    assert name == str(connections[alias].settings_dict["NAME"])
    assert "test" in name
    assert MEMBER in name
    assert User.objects.using(alias).count() == 1
    if "replica" in connections:
        assert User.objects.using("replica").count() == (alias == "default")
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "settings.py").write_text(SETTINGS)
    (tmp_path / "shop" / "tasks.py").write_text(TASKS)
    (tmp_path / "pytest.ini").write_text("[pytest]\nfirmq_modules = shop.tasks\npythonpath = .\n")
    return tmp_path


def run_with_django(project: Path, tests: str = TESTS, options: str = "", **environment: str) -> str:
    plugins = f"-p pytest_django.plugin -p xdist.plugin {options}"
    return run(project, tests, DJANGO_SETTINGS_MODULE="shop.settings", PYTEST_ADDOPTS=plugins, **environment)


@pytest.mark.parametrize("options", ["--reuse-db", "-n 2"])
def test_a_worker_uses_the_databases_of_the_tests(project: Path, postgresql: PostgreSQL, options: str) -> None:
    for name in ("shop", "orders"):
        postgresql.create(name)
    told = run_with_django(project, options=options, SHOP_HOST=str(postgresql.folder))
    assert "4 passed" in told, told
    for name in ("shop", "orders"):
        with postgresql.connect(name) as connection:
            assert connection.execute("SELECT FROM pg_tables WHERE schemaname = 'public'").fetchall() == []


def test_a_worker_uses_a_file_of_the_tests(project: Path) -> None:
    told = run_with_django(project)
    assert "2 passed" in told, told
    assert not (project / "shop.sqlite3").exists()


def test_a_test_in_a_transaction_is_refused(project: Path) -> None:
    told = run_with_django(project, "def test_it(db, firmq_worker): ...")
    assert "does not see rows written in a transaction: mark the test with @pytest.mark.django_db(tr" in told


def test_a_database_in_memory_is_refused(project: Path) -> None:
    told = run_with_django(project, SHOP_MEMORY="1")
    assert "cannot use the database 'default', which is in the memory of the test's process: give its entry" in told
    assert not (project / "shop.sqlite3").exists()


def test_a_database_in_memory_does_not_matter_to_a_test_without_databases(project: Path) -> None:
    (project / "shop" / "tasks.py").write_text("from firmq import task\n\n@task('echo')\ndef echo(data): return data\n")
    test = """
        import pytest
        from shop.tasks import echo

        def test_echo(firmq_worker):
            assert firmq_worker.result(echo.submit(5).task_id, timeout=60) == 5

        @pytest.mark.django_db(transaction=True)
        def test_marked(firmq_worker): ...

        def test_fixture(transactional_db, firmq_worker): ...
    """
    told = run_with_django(project, textwrap.dedent(test), SHOP_MEMORY="1")
    assert "1 passed, 2 errors" in told, told


def test_without_the_databases_of_tests_a_worker_is_refused(project: Path) -> None:
    told = run(project, "def test_it(firmq_worker): ...", DJANGO_SETTINGS_MODULE="shop.settings")
    assert "would use the development database, because Django is not set up" in told
    assert "install pytest-django" in told
