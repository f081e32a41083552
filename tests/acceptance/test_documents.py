"""The documents are true: walk-throughs run, generated pages are the code's, named tests and files exist."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from sqlalchemy import create_engine

from firmq import Client
from firmq.outbox.relay import Relay
from firmq.outbox.senders import GatewaySender
from firmq.outbox.sqlalchemy import SqlTable
from firmq.shared.client.resources import Resource
from tests.acceptance.exercise import exercise
from tests.acceptance.running import Product, product
from tests.support.documents import DOCUMENTS, PAGES
from tests.support.harness import ROOT
from tools import reference

TEN = (
    "task_submissions_total",
    "task_completions_total",
    "task_duration_seconds",
    "task_retries_total",
    "tasks_in_dlq_total",
    "active_workers_total",
    "pending_tasks_total",
    "retry_tasks_total",
    "task_failures_total",
    "worker_errors_total",
)
"""The metrics of the deployment guide."""


PLUGIN = "firmq.testing.plugin"
QUICKSTART = ROOT / "docs" / "quickstart.md"
GUIDES = ROOT / "docs" / "guides"
WALK_THROUGHS = {
    "README.md": 2,
    "docs/quickstart.md": 10,
    "docs/guides/handlers.md": 4,
    "docs/guides/batches-and-dependencies.md": 7,
    "docs/guides/scheduling.md": 7,
    "docs/guides/queues-and-priorities.md": 7,
    "docs/operate/upgrade.md": 1,
    "docs/reference/api.md": 1,
    "docs/reference/cli.md": 2,
    "docs/guides/http-tasks.md": 3,  # the last, as it makes the worker start one more executor
}
"""Pages whose commands are run as they stand, and how many there are."""


SENTRY = """
import contextlib, logging, types
def init(**options): ...
def flush(timeout): ...
def new_scope(): return contextlib.nullcontext(types.SimpleNamespace(set_tag=print, set_context=print))
def capture_exception(error): logging.getLogger("sentry").warning("captured %s", error)
"""
"""In place of the library, which is not installed here and would send what it captures."""


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Product]:
    """The product with the handlers of the pages."""
    folder = tmp_path_factory.mktemp("readme")
    (folder / "shop").mkdir()
    (folder / "shop" / "__init__.py").touch()
    (folder / "shop" / "tasks.py").write_text(python(QUICKSTART, "# shop/tasks.py"))
    (folder / "shop" / "invoices.py").write_text(python(GUIDES / "handlers.md", "# shop/tasks.py"))
    batches = GUIDES / "batches-and-dependencies.md"
    blocks = ("from firmq import current_task, task", '@task("fetch")', '@task("summary")')
    (folder / "shop" / "imports.py").write_text("\n".join(python(batches, each) for each in blocks))
    for module in ("database", "reporting", "worker"):
        (folder / "shop" / f"{module}.py").write_text(python(GUIDES / "hooks.md", f"# shop/{module}.py"))
    (folder / "sentry_sdk.py").write_text(SENTRY)
    modules = "firmq.worker.handlers.examples,shop.tasks,shop.invoices,shop.imports,shop.database,shop.reporting"
    with product(
        folder,
        TASK_MODULES=modules,
        WORKER_HOOK_MODULES="shop.worker",
        SHOP_DATABASE=str(folder / "shop.db"),
        PYTHONPATH=str(folder),
        QUEUE_EXECUTORS="low:1",
        WORKER_EXECUTORS="2",
        HTTP_TASK_HOSTS="127.0.0.1",
        HTTP_TASK_ALLOW="127.0.0.1",
    ) as up:
        yield up


def python(page: Path, first_words: str) -> str:
    """The block of Python in a page that begins with these words."""
    [found] = [
        each for each in re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL) if each.startswith(first_words)
    ]
    return str(found)


def walk_through(page: Path) -> Iterator[tuple[str, str]]:
    """Commands and the answers shown for them."""
    for block in re.findall(r"```console\n\$ (.*?)```", page.read_text(), re.DOTALL):
        for part in block.split("\n$ "):
            command, *shown = part.splitlines()
            while command.count("'") % 2:  # it continues on the next line
                command += "\n" + shown.pop(0)
            yield command, "\n".join(shown).strip()


def output(command: str, running: Product, ids: Mapping[str, str]) -> str:
    there = command.replace("localhost:8000", f"127.0.0.1:{running.ports['GATEWAY_PORT']}")
    there = there.replace(".venv/bin/firmq", f"{sys.executable} -m firmq")
    there = there.replace("2027-01-31", f"{datetime.now(UTC) + timedelta(days=1):%F}")
    environment = {**ids, "PATH": "/usr/bin:/bin", "FIRMQ_URL": running.url}
    done = subprocess.run(
        ["bash", "-c", there], env=environment, cwd=ROOT, capture_output=True, text=True, timeout=240, check=True
    )
    return done.stdout


def fits(shown: str, answer: str) -> bool:
    """Whether an answer is what a page shows, where an ellipsis stands for any text."""
    pattern = "".join(".*?" if part == "…" else re.escape(part) for part in re.split("(…)", shown))
    return bool(re.fullmatch(pattern + (".*" if shown.endswith("…") else ""), answer.strip(), re.DOTALL))


@pytest.mark.parametrize("page", WALK_THROUGHS)
def test_a_walk_through_gives_the_answers_that_are_shown(running: Product, page: str) -> None:
    Path("/tmp/orders.txt").unlink(missing_ok=True)  # the path of the page
    ids = {"TASK_ID": running.api.post("/tasks", json={"type": "process", "data": "before"}).json()["task_id"]}
    done = 0
    for command, shown in walk_through(ROOT / page):
        answer = output(command, running, ids)
        until = time.monotonic() + 90
        while not fits(shown, answer) and " -X " not in command and time.monotonic() < until:
            answer = output(command, running, ids)  # a reader is slower than this
        assert fits(shown, answer), f"{command}\n  shown: {shown}\n  got:   {answer}"
        if found := re.match(r'\{"task_id":"(\w+)","status":"\w+","type"', answer):
            ids["TASK_ID"] = found[1]
        elif found := re.match(r'\{"batch_id":"(\w+)"', answer):
            ids["BATCH_ID"] = found[1]
        done += 1
    assert done == WALK_THROUGHS[page]


@pytest.mark.parametrize("program", ["# quickstart.py", "# submit.py"])
def test_a_program_of_the_quickstart_prints_what_is_shown(running: Product, program: str) -> None:
    code = python(QUICKSTART, program).replace("http://localhost:8000", running.url)
    shown = re.findall(r"print\(.*\)  # (.*)", code)
    environment = {**os.environ, "FIRMQ_URL": running.url, "PYTHONPATH": str(running.data.parent)}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=240, check=True
    )
    lines = done.stdout.splitlines()
    assert len(lines) == len(shown)
    assert [each for each in zip(shown, lines, strict=True) if not fits(*each)] == []


def test_the_hooks_of_their_page_run(running: Product) -> None:
    with Client(running.url) as queue:
        assert queue.result(queue.submit("count-orders", {}).task_id, timeout=120) == 0
        failed = queue.submit("send-invoice", {"order": -1}).task_id
        assert queue.wait(failed, 120).status == "failed"
        [attempt] = queue.get(failed).attempts
    assert any("captured there is no order -1" in line for line in attempt.logs)


def test_the_program_of_direct_submission_prints_what_is_shown(running: Product) -> None:
    code = python(GUIDES / "direct-submission.md", "# direct.py")
    there = {**os.environ, "REDIS_URL": running.redis_url}
    shown = re.findall(r"print\(.*\)  # (.*)", code)
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env=there, capture_output=True, text=True, timeout=240, check=True
    )
    lines = done.stdout.splitlines()
    assert len(lines) == len(shown)
    assert [each for each in zip(shown, lines, strict=True) if not fits(*each)] == []


def test_the_programs_of_the_page_about_transactions_submit_what_they_commit(running: Product, tmp_path: Path) -> None:
    environment = {**os.environ, "FIRMQ_URL": running.url, "PYTHONPATH": f"{running.data.parent}:{ROOT}"}
    for program in ("# outbox.py", "# on_commit.py"):
        code = python(GUIDES / "transactions.md", program)
        subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=environment, timeout=240, check=True)
    relay = Relay(SqlTable(create_engine(f"sqlite:///{tmp_path / 'shop.db'}")), GatewaySender(running.url))
    relay.step()
    assert (relay.counts.sent, relay.counts.refused, relay.failing) == (3, 0, False)
    late = running.api.get("/tasks", params={"type": "send-invoice", "tag": "late"}).json()
    assert late["items"] == []


def test_the_tests_of_the_page_about_testing_pass(tmp_path: Path) -> None:
    (tmp_path / "shop").mkdir()
    handlers = python(GUIDES / "handlers.md", "# shop/tasks.py") + python(QUICKSTART, "# shop/tasks.py")
    (tmp_path / "shop" / "tasks.py").write_text(handlers)
    blocks = re.findall(r"```python\n(.*?)```", (GUIDES / "testing.md").read_text(), re.DOTALL)
    (tmp_path / "test_shop.py").write_text("\n".join(blocks))
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", PLUGIN, "-o", "firmq_modules=shop.tasks", "test_shop.py"],
        cwd=tmp_path,
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert "7 passed" in done.stdout, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("page", "modules", "passed"),
    [
        ("flask.md", "firmq.flask.worker", 3),
        ("fastapi.md", "shop.tasks", 2),
        ("moving-from-celery.md", "shop.tasks", 2),
    ],
)
def test_the_tests_of_a_page_with_an_application_pass(tmp_path: Path, page: str, modules: str, passed: int) -> None:
    (tmp_path / "shop").mkdir()
    for block in re.findall(r"```python\n(# .*?)```", (GUIDES / page).read_text(), re.DOTALL):
        name = re.match(r"# ([\w/]+\.py)", block)[1]  # type: ignore[index]
        with (tmp_path / name).open("a") as file:
            file.write(block)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", PLUGIN, "-o", f"firmq_modules={modules}", "test_shop.py"],
        cwd=tmp_path,
        env={
            "PATH": "/usr/bin:/bin",
            "PYTHONPATH": str(ROOT),
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
            "FLASK_APP": "shop",
        },
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert f"{passed} passed" in done.stdout, done.stdout + done.stderr


def test_the_tests_of_the_page_about_django_pass(tmp_path: Path) -> None:
    page = GUIDES / "django.md"
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "__init__.py").touch()
    settings = python(page, "# shop/settings.py\n") + python(page, "# shop/settings.py, continued")
    database = 'DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}}\n'
    (tmp_path / "shop" / "settings.py").write_text(settings + database)
    for name in ("tasks", "views", "checkout", "handlers", "tests"):
        code = python(page, f"# shop/{name}.py")
        if importlib.util.find_spec("django.tasks"):
            code = code.replace("from django_tasks import", "from django.tasks import")
        (tmp_path / "shop" / f"{name}.py").write_text(code)
    environment = {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT), "DJANGO_SETTINGS_MODULE": "shop.settings"}
    done = subprocess.run(
        [sys.executable, "-m", "django", "test", "shop"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert "Ran 3 tests" in done.stderr, done.stderr
    assert done.returncode == 0, done.stderr


def test_generated_pages_are_what_the_code_gives() -> None:
    assert reference.main(["--check"]) == 0


def test_the_ten_metrics_of_the_reference_are_on_the_gateways_page(running: Product) -> None:
    exercise(running.api)
    page = running.api.get("/metrics").text
    for name in TEN:
        assert re.search(rf"^{name}(_bucket)?[ {{]", page, re.MULTILINE), name


def test_looking_for_task_on_the_gateways_page_finds_all_ten(running: Product) -> None:
    """The command of the deployment guide; those whose name does not hold the word say it in their help."""
    exercise(running.api)
    command = "curl -s http://localhost:8000/metrics | grep task_"
    there = command.replace("localhost:8000", f"127.0.0.1:{running.ports['GATEWAY_PORT']}")
    found = subprocess.run(["bash", "-c", there], capture_output=True, text=True, timeout=120, check=True).stdout
    for name in TEN:
        assert re.search(rf"^(# HELP )?{name}\b", found, re.MULTILINE), name


def test_the_page_of_the_client_lists_all_of_it() -> None:
    page = (GUIDES / "client.md").read_text()
    rows = page.split("## The rest of the API")[1].split("\n## ")[0].splitlines()
    with Client("http://localhost:1") as queue:
        names = {each for each in dir(queue) if not each.startswith("_")}
        resources = {each: getattr(queue, each) for each in names if isinstance(getattr(queue, each), Resource)}
    described = {"close", "transport", "cancel", "get", "stream", "tasks", "wait"}  # in the sections before
    assert {each for each in names - resources.keys() if f"queue.{each}" not in page} <= described
    for name, resource in resources.items():
        [row] = [each for each in rows if each.startswith(f"| `queue.{name}`")]
        calls = {each for each in dir(resource) if not each.startswith("_") and callable(getattr(resource, each))}
        assert {each for each in calls if f"`{each}" not in row} <= {"transport"}, row


def test_every_test_that_a_document_names_exists() -> None:
    named = set(re.findall(r"`(test_\w+)`", DOCUMENTS)) - {path.stem for path in ROOT.glob("tests/**/test_*.py")}
    defined = {
        name for path in ROOT.glob("tests/**/*.py") for name in re.findall(r"def (test_\w+)\(", path.read_text())
    }
    assert named
    assert named <= defined, named - defined


def test_every_guarantee_names_a_test() -> None:
    text = (ROOT / "docs" / "guarantees.md").read_text().split("## Not guaranteed")[0]
    rows = [row for row in re.findall(r"^\| .*$", text, re.MULTILINE) if not row.startswith("| guarantee |")]
    assert len(rows) > 30
    assert [row for row in rows if "`test_" not in row] == []


@pytest.mark.parametrize("page", [*PAGES, ROOT / "worker/README.md", ROOT / "shared/README.md"], ids=str)
def test_files_that_a_page_links_to_exist(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text()):
        assert (page.parent / target).exists(), target


@pytest.mark.parametrize("folder", ["worker", "shared", "gateway", "dashboard"])
def test_the_readme_of_a_folder_names_the_files_that_are_there(folder: str) -> None:
    text = (ROOT / folder / "README.md").read_text()
    named = set(re.findall(r"`([a-z_/]+\.py)`", text))
    there = {path.name for path in (ROOT / folder).glob("*.py")} - {"__init__.py", "__main__.py"}
    assert not there - named, f"{folder}/README.md does not name {there - named}"
    for name in named:
        assert (ROOT / folder / name).exists() or (ROOT / name).exists(), f"{folder}/README.md: there is no {name}"
