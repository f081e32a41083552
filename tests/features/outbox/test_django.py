"""The outbox of a Django project: its migration, its rows, and the management command of its relay."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from redis import Redis
from sqlalchemy import Engine, make_url

from firmq.outbox.sqlalchemy import SqlTable
from firmq.shared.redis.client import text
from firmq.shared.stores.task_types import TaskType, TaskTypes
from tests.support.harness import ROOT, wait_until
from tests.support.keys import keys

ENGINES = {"postgresql+psycopg": "postgresql", "sqlite": "sqlite3"}


class Project:
    """A Django project; each command runs in a process of its own."""

    def __init__(self, engine: Engine, **environment: str) -> None:
        url = make_url(engine.url)
        self.environment = {
            **os.environ,
            "DJANGO_SETTINGS_MODULE": "tests.features.outbox.django_settings",
            "SHOP_ENGINE": ENGINES[url.drivername],
            "SHOP_NAME": url.database or "",
            "SHOP_HOST": url.host or str(url.query.get("host", "")),
            "SHOP_PORT": str(url.port or ""),
            "SHOP_USER": url.username or "",
            **environment,
        }

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", *arguments]
        return subprocess.Popen(command, cwd=ROOT, env=self.environment, stdout=subprocess.PIPE, text=True)

    def run(self, *arguments: str) -> str:
        process = self.start(*arguments)
        output, _ = process.communicate(timeout=60)
        assert process.returncode == 0, output
        return output


@pytest.fixture(params=["1", "0"], ids=["aware", "naive"])
def project(request: pytest.FixtureRequest, engine: Engine, redis_client: Redis, redis_url: str) -> Project:
    if engine.url.drivername not in ENGINES:
        pytest.skip("Django has drivers of its own for this database")
    names = ("outbox-invoice", "process", "tests.features.outbox.django_tasks.receipt")
    strict = TaskType(name="strict", schema={"type": "string"})
    TaskTypes(redis_client).publish([*(TaskType(name=name, schema={}) for name in names), strict])
    project = Project(engine, FIRMQ_URL=redis_url, OUTBOX_METRICS_PORT="0", SHOP_USE_TZ=request.param)
    project.run("django", "migrate", "-v0")
    return project


@pytest.fixture
def relay(project: Project) -> Iterator[subprocess.Popen[str]]:
    process = project.start("django", "firmq_outbox")
    yield process
    process.kill()
    process.wait()


def test_the_migration_is_that_of_the_model(project: Project) -> None:
    assert "No changes" in project.run("django", "makemigrations", "firmq_outbox", "--check")


def test_committed_rows_become_tasks_and_refused_ones_can_be_seen_and_retried(
    project: Project, relay: subprocess.Popen[str], engine: Engine, redis_client: Redis
) -> None:
    ids = project.run("tests.features.outbox.django_writer").split()
    table = SqlTable(engine)  # the same table, also for the other relay
    wait_until(lambda: table.backlog().refused == 1 and table.backlog().waiting == 0, "all rows were sent")
    stored = list(map(text, redis_client.lrange(keys.rq_queue("normal"), 0, -1)))
    assert stored == ids
    refused = project.run("django", "firmq_outbox", "--refused")
    assert "strict" in refused
    assert "string" in refused
    TaskTypes(redis_client).publish([TaskType(name="strict", schema={})])
    assert "1 rows wait again" in project.run("django", "firmq_outbox", "--retry")
    wait_until(lambda: redis_client.llen(keys.rq_queue("normal")) == len(ids) + 1, "the row was sent again")
    relay.send_signal(signal.SIGTERM)
    assert relay.wait(10) == 0


def test_the_age_of_a_row_does_not_depend_on_time_zones(project: Project, engine: Engine, tmp_path: Path) -> None:
    project.run("tests.features.outbox.django_writer")
    code = (
        "import django; django.setup()\n"
        "from datetime import UTC, datetime\n"
        "from firmq.django.outbox.table import DjangoTable\n"
        "print((datetime.now(UTC) - DjangoTable().backlog().oldest_at).total_seconds())\n"
    )
    (script := tmp_path / "age.py").write_text(code)
    environment = {**project.environment, "PYTHONPATH": str(ROOT)}
    said = subprocess.run([sys.executable, script], env=environment, capture_output=True, text=True, check=True)
    assert 0 <= float(said.stdout) < 60


def test_a_task_that_waits_in_the_outbox_has_a_result(project: Project, tmp_path: Path) -> None:
    code = (
        "import django; django.setup()\n"
        "from firmq.django import outbox\n"
        "from firmq.django.framework import TaskResultDoesNotExist\n"
        "from firmq.django.outbox.models import OutboxRow\n"
        "from tests.features.outbox.django_tasks import receipt\n"
        "from tests.features.outbox.handlers import invoice\n"
        "task_id = outbox.add(receipt, 7)\n"
        "result = receipt.get_result(task_id)\n"
        "print(result.status, result.args, result.id == task_id)\n"
        "OutboxRow.objects.filter(task_id=task_id).update(state='refused')\n"
        "for other in (outbox.add(invoice, 7), '01J00000000000000000000000', task_id):\n"
        "    try:\n"
        "        print(receipt.get_result(other))\n"
        "    except TaskResultDoesNotExist:\n"
        "        print('none')\n"
    )
    (script := tmp_path / "ask.py").write_text(code)
    environment = {**project.environment, "PYTHONPATH": str(ROOT)}
    said = subprocess.run([sys.executable, script], env=environment, capture_output=True, text=True, check=False)
    assert said.stdout.splitlines() == ["READY [7] True", "none", "none", "none"], said.stderr
