"""The fixtures of the pytest plugin, in a project of a user."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.harness import ROOT, alive, wait_until

TASKS = """
import time
from datetime import date

from firmq import task


@task("send-invoice", max_retries=1)
def send_invoice(order: int, due: date) -> str:
    if order < 0:
        raise ValueError(f"no order {order}")
    return f"invoice {order}, due {due.year}"


@task("close-order")
def close_order(order: int) -> str:
    return send_invoice.submit(order=order, due=date(2024, 2, 29)).task_id


@task("greet")
async def greet(name: str) -> str:
    return f"Hello {name}"


@task("sleep")
def sleep(seconds: float) -> None:
    time.sleep(seconds)
"""
CONFIGURATION = "[pytest]\nfirmq_modules = shop.tasks\npythonpath = .\n"
EAGER = """
import asyncio
import threading
from datetime import date

import pytest

from shop.tasks import close_order, greet, send_invoice
from firmq import ClientError


def test_a_task_ran_when_submit_returns(firmq_eager):
    task = send_invoice.submit(order=7, due=date(2024, 2, 29))
    assert firmq_eager.result(task.task_id) == "invoice 7, due 2024"


def test_what_was_submitted_is_seen(firmq_eager):
    send_invoice.options(delay=60, unique_key="7").submit(order=7, due=date(2024, 2, 29))
    [task] = firmq_eager.tasks(task_type="send-invoice")
    assert firmq_eager.get(task.task_id).data == {"order": 7, "due": "2024-02-29"}


def test_a_handler_submits_within_a_handler(firmq_eager):
    child = firmq_eager.result(close_order.submit(7).task_id)
    assert firmq_eager.result(child) == "invoice 7, due 2024"


def test_a_failure_is_on_record(firmq_eager):
    task = send_invoice.submit(order=-1, due=date(2024, 2, 29))
    assert (task.status, len(firmq_eager.get(task.task_id).attempts)) == ("failed", 2)


def test_asyncio(firmq_eager):
    task = asyncio.run(greet.submit_async("Ann"))
    assert firmq_eager.result(task.task_id) == "Hello Ann"


def test_the_client_is_that_of_one_test():
    with pytest.raises(ClientError, match="no client"):
        greet.submit("Ann")
"""
WORKER = """
import asyncio
from datetime import date

import pytest

from shop.tasks import close_order, greet, send_invoice, sleep
from firmq import Client, TaskFailed


def test_a_worker_runs_what_is_submitted(firmq_worker):
    task = send_invoice.submit(order=7, due=date(2024, 2, 29))
    assert firmq_worker.result(task.task_id, timeout=120) == "invoice 7, due 2024"
    assert firmq_worker.get(task.task_id).attempts[0].worker != "local"


def test_a_failure_is_retried_soon(firmq_worker):
    task = send_invoice.submit(order=-1, due=date(2024, 2, 29))
    with pytest.raises(TaskFailed):
        firmq_worker.result(task.task_id, timeout=120)
    assert [letter.attempt for letter in firmq_worker.dead_letters] == [2]


def test_handlers_submit_to_the_same_system(firmq_worker):
    child = firmq_worker.result(close_order.submit(7).task_id, timeout=120)
    assert firmq_worker.result(child, timeout=120) == "invoice 7, due 2024"


def test_clients_without_an_address_use_the_system(firmq_worker):
    with Client() as client:
        assert client.result(asyncio.run(greet.submit_async("Ann")).task_id, timeout=120) == "Hello Ann"


@pytest.mark.parametrize("number", [1, 2, 3])
def test_each_test_begins_without_tasks(firmq_worker, number):
    assert list(firmq_worker.tasks()) == list(firmq_worker.dead_letters) == []
    assert not any(queue.paused for queue in firmq_worker.queues.all())
    task = greet.options(idempotency_key="same", unique_key="same").submit(f"{number}")
    assert firmq_worker.result(task.task_id, timeout=120) == f"Hello {number}"
    send_invoice.options(delay=3600).submit(order=1, due=date(2024, 2, 29))
    running = sleep.submit(60)
    for seen in firmq_worker.watch(running.task_id):
        if seen.status == "running":
            break
    sleep.submit(60)
    firmq_worker.queues.pause("high", reason="test")
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "tasks.py").write_text(TASKS)
    (tmp_path / "pytest.ini").write_text(CONFIGURATION)
    return tmp_path


def run(project: Path, tests: str, **environment: str) -> str:
    """Runs tests of the project with the plugin; what pytest wrote."""
    (project / "test_shop.py").write_text(tests)
    command = (sys.executable, "-m", "pytest", "-p", "firmq.testing.plugin", "--basetemp", project / "temp", "-q")
    clean = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PYTEST_", "TASK", "REDIS_", "DJANGO_"))
    }
    alone = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        command,
        cwd=project,
        env={**clean, **alone, **environment},
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    return done.stdout + done.stderr


def test_eager_runs_tasks_at_submission(project: Path) -> None:
    told = run(project, EAGER)
    assert "6 passed" in told, told


def test_a_real_worker_runs_tasks_and_each_test_begins_empty(project: Path) -> None:
    others = {
        "API_KEYS": "invalid",
        "REDIS_URL": "redis://127.0.0.1:1",
        "HISTORY_URL": "no-such-database://",
        "ALERT_AFTER": "?",
    }
    told = run(project, WORKER, **others)
    logs = "\n".join(path.read_text() for path in project.glob("temp/firmq*/*.log"))
    assert "7 passed" in told, told + logs
    wait_until(lambda: not _left_in(project), "no process of the system is left")


def _left_in(folder: Path) -> list[int]:
    pids = [int(path.name) for path in Path("/proc").glob("[0-9]*") if _works_in(path, folder)]
    return [pid for pid in pids if alive(pid)]


def _works_in(process: Path, folder: Path) -> bool:
    try:
        return str(folder) in (process / "environ").read_text() + (process / "cmdline").read_text()
    except OSError:
        return False


def test_a_module_that_cannot_be_imported_is_named(project: Path) -> None:
    told = run(project, "def test_it(firmq_worker): ...", PYTEST_ADDOPTS="-o firmq_modules=shop.taks")
    assert "worker ended with status 2 before it was ready" in told
    assert "module shop.taks cannot be imported" in told


def test_without_modules_the_error_says_what_to_set(project: Path) -> None:
    told = run(project, "def test_it(firmq_worker): ...", PYTEST_ADDOPTS="-o firmq_modules=")
    assert "set firmq_modules in the configuration of pytest, or TASK_MODULES" in told


def test_the_plugin_loads_nothing_before_a_fixture_is_used() -> None:
    code = "import sys, firmq.testing.plugin; print([each for each in sys.modules if each.startswith('firmq.')])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "['firmq.testing', 'firmq.testing.plugin']\n"
