"""`firmq dev` in a folder with one file of handlers, of the built wheel: from installation to an edited handler."""

from __future__ import annotations

import os
import re
import statistics
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.acceptance.running import Product, product
from tests.acceptance.test_package import installed, run, wheel
from tests.support.figures import judge
from tests.support.harness import wait_until

__all__ = ["wheel"]  # a fixture

pytestmark = pytest.mark.alone

HANDLERS = """
import time

from firmq import task


@task("greet")
def greet(name: str{parameters}) -> str:
    return f"{greeting} {{name}}"


@task("sleep")
def sleep(seconds: float) -> str:
    time.sleep(seconds{faster})
    return "{greeting}"
"""
TO_FIRST_TASK = 60.0
"""Seconds from `pip install` to the first completed task."""
TO_EDITED = 2.0
"""Seconds from a save to the first result of the edited handler."""
EDITS = 12


class Project:
    """A folder with one file of handlers; each edit changes what they return."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.folder = folder
        self.file = folder / "tasks.py"
        self.edits = 0
        self.edit()

    @property
    def greeting(self) -> str:
        return f"Hello{self.edits}"

    def edit(self, parameters: str = "", more: str = "") -> float:
        """Saves another version, and returns when."""
        self.edits += 1
        faster = " / 1000" if self.edits > 1 else ""
        text = HANDLERS.format(greeting=self.greeting, parameters=parameters, faster=faster) + more
        self.file.write_text(text)
        return time.monotonic()


@pytest.fixture(scope="module")
def began() -> float:
    return time.monotonic()


@pytest.fixture(scope="module")
def commands(wheel: Path, began: float, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return installed(tmp_path_factory.mktemp("dev"), wheel, "local")


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    return Project(tmp_path_factory.mktemp("empty") / "project")


@pytest.fixture(scope="module")
def running(commands: Path, project: Project, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Product]:
    with product(
        tmp_path_factory.mktemp("run"), "tasks", code=project.folder, python=commands / "python", PYTHONPATH=""
    ) as up:
        yield up


def result(running: Product, kind: str, data: dict[str, object]) -> object:
    """What a new task returned; None if it is refused."""
    accepted = running.api.post("/tasks", json={"type": kind, "data": data})
    if accepted.status_code != 202:
        return None
    return running.api.get(f"/tasks/{accepted.json()['task_id']}/result?wait=20").json()["result"]


def seconds_until(running: Product, saved: float, kind: str, data: dict[str, object], wanted: object) -> float:
    """How long after a save this was the result for the first time."""
    wait_until(lambda: result(running, kind, data) == wanted, f"the result is {wanted!r}")
    return time.monotonic() - saved


def test_the_first_task_completes_within_a_minute_of_the_installation(
    commands: Path, began: float, project: Project, tmp_path: Path
) -> None:
    started = time.monotonic()
    with product(tmp_path, "tasks", code=project.folder, python=commands / "python", PYTHONPATH="") as up:
        command = re.search(r"firmq (--url \S+ )?submit greet .*", up.log.read_text())
        assert command, up.log.read_text()
        run("sh", "-c", command[0], cwd=project.folder, PATH=f"{commands}:{os.environ['PATH']}")
        done = time.monotonic()
    print(f"\nfrom an environment to the first result: {done - began:.1f} s, of which {done - started:.1f} s after it")
    judge("to the first task", done - began, TO_FIRST_TASK)


def test_each_save_of_an_edited_handler_is_used(running: Product, project: Project) -> None:
    waited = []
    for _ in range(EDITS):
        time.sleep(0.3)
        waited.append(seconds_until(running, project.edit(), "greet", {"name": "Ann"}, f"{project.greeting} Ann"))
    print(f"\nfrom a save to its use: p50 {statistics.median(waited):.2f} s, max {max(waited):.2f} s of {EDITS} edits")
    judge("from a save to its use", max(waited), TO_EDITED)


def test_new_types_and_changed_schemas_reach_the_gateway(running: Product, project: Project) -> None:
    saved = project.edit(more='\n\n@task("new")\ndef new() -> str:\n    return "new"\n')
    waited = [seconds_until(running, saved, "new", {}, "new")]
    saved = project.edit(parameters=", title: str")
    old = {"type": "greet", "data": {"name": "Ann"}}
    wait_until(lambda: running.api.post("/tasks", json=old).status_code == 422, "data of before is refused")
    waited.append(time.monotonic() - saved)
    assert result(running, "greet", {"name": "Ann", "title": "Dr"}) == f"{project.greeting} Ann"
    print(f"\nnew type {waited[0]:.2f} s, refusal by a new schema {waited[1]:.2f} s")
    judge("from a save to the gateway", max(waited), TO_EDITED)


def test_a_syntax_error_is_shown_and_the_next_save_counts(running: Product, project: Project) -> None:
    project.edit(more="def broken(:\n")
    wait_until(lambda: "SyntaxError" in running.log.read_text(), "the error is shown")
    assert "def broken(:" in running.log.read_text()
    assert result(running, "greet", {"name": "Ann", "title": "Dr"}) == f"Hello{project.edits - 1} Ann"
    assert running.process.poll() is None
    waited = seconds_until(running, project.edit(), "greet", {"name": "Ann"}, f"{project.greeting} Ann")
    judge("from a corrected save to its use", waited, TO_EDITED)


def test_tasks_that_run_during_a_save_are_given_back_and_complete(running: Product, project: Project) -> None:
    project.edits = 0
    project.edit()
    seconds_until(running, time.monotonic(), "greet", {"name": "Ann"}, "Hello1 Ann")
    tasks = [running.api.post("/tasks", json={"type": "sleep", "data": {"seconds": 60}}).json() for _ in range(20)]
    wait_until(lambda: running.api.get(f"/tasks/{tasks[0]['task_id']}").json()["status"] == "running", "one runs")
    project.edit()
    results = [running.api.get(f"/tasks/{task['task_id']}/result?wait=30").json() for task in tasks]
    assert [each["result"] for each in results] == ["Hello2"] * 20


def test_without_reload_an_edit_is_not_used(commands: Path, project: Project, tmp_path: Path) -> None:
    folder, python = project.folder, commands / "python"
    with product(tmp_path, "tasks", "--no-reload", code=folder, python=python, PYTHONPATH="") as up:
        before = project.greeting
        project.edit()
        time.sleep(TO_EDITED)
        assert result(up, "greet", {"name": "Ann"}) == f"{before} Ann"


def test_an_idle_dev_takes_little_of_a_processor(running: Product) -> None:
    time.sleep(1)
    began, before = time.monotonic(), _processor_seconds(running.process)
    time.sleep(5)
    share = (_processor_seconds(running.process) - before) / (time.monotonic() - began)
    print(f"\nthe idle process that watches files takes {share:.1%} of a processor")
    assert share < 0.05


def _processor_seconds(process: subprocess.Popen[bytes]) -> float:
    fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
