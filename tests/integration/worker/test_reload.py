"""A worker reloads its handlers at a signal: nothing is lost, and a mistake leaves the earlier ones in use."""

from __future__ import annotations

import json
import subprocess
import time
from pathlib import Path

import pytest

from firmq.shared.config.signals import RELOAD
from firmq.shared.stores.task_types import TaskTypes
from firmq.worker.executors.pool import RELOAD_GRACE
from tests.support.harness import System, alive, wait_until

HANDLERS = """
import asyncio, os, pathlib, time
from firmq import task

@task("version")
def version({parameters}) -> int:
    return {number}

@task("sleep")
def sleep(seconds: float) -> int:
    pathlib.Path(__file__).with_name(f"began-{{seconds}}").touch()
    time.sleep(seconds if {number} == 1 else 0)
    return {number}

pathlib.Path(__file__).with_name(f"imported-{{os.getpid()}}").touch()

@task("wait")
async def wait(seconds: float) -> int:
    pathlib.Path(__file__).with_name(f"began-{{seconds}}").touch()
    await asyncio.sleep(seconds if {number} == 1 else 0)
    return {number}
"""


class Project:
    """Handlers that are edited while a worker runs them; each returns the number of the edit."""

    def __init__(self, system: System, folder: Path) -> None:
        self.system = system
        self.file = folder / "edited.py"
        self.edits = 0
        self.edit()
        self.worker = self.start()
        wait_until(lambda: len(list(folder.glob("imported-*"))) == 3, "two serial executors and a concurrent one")

    def start(self) -> subprocess.Popen[bytes]:
        return self.system.start_worker(
            TASK_MODULES="edited", PYTHONPATH=str(self.file.parent), PYTHONDONTWRITEBYTECODE="1", WORKER_EXECUTORS="2"
        )

    def edit(self, parameters: str = "") -> None:
        self.edits += 1
        self.file.write_text(HANDLERS.format(number=self.edits, parameters=parameters))

    def reload(self) -> None:
        self.worker.send_signal(RELOAD)

    def in_use(self, data: str = "{}") -> object:
        return self.system.ended(self.system.submit("version", data)).result


@pytest.fixture
def project(system: System, tmp_path: Path) -> Project:
    return Project(system, tmp_path)


def test_edited_handlers_are_used_by_the_same_worker(project: Project) -> None:
    assert project.in_use() == 1
    pids = project.system.executors(project.worker)
    project.edit()
    project.reload()
    wait_until(lambda: project.in_use() == 2, "the edited handler is used")
    wait_until(lambda: not any(map(alive, pids)), "the earlier executors have ended")
    assert len(project.system.executors(project.worker)) == 2
    [worker] = project.system.workers.all()
    assert (worker.pid, project.worker.poll()) == (project.worker.pid, None)


def test_changed_schemas_are_published_with_the_reload(project: Project) -> None:
    types = TaskTypes(project.system.redis)
    project.edit(parameters="name: str")
    project.reload()
    wait_until(lambda: "name" in json.dumps([each.schema for each in types.all()]), "the new schema is published")
    assert [list(each.schema["properties"]) for each in types.all() if each.name == "version"] == [["name"]]
    assert project.in_use('{"name": "x"}') == 2


@pytest.mark.parametrize("kind", ["sleep", "wait"])
def test_running_tasks_get_a_grace_and_are_given_back_at_no_cost(project: Project, kind: str) -> None:
    system = project.system
    short, long = (system.submit(kind, json.dumps({"seconds": seconds})) for seconds in (RELOAD_GRACE / 4, 60))
    wait_until(lambda: len(list(project.file.parent.glob("began-*"))) == 2, "both have begun")
    waiting = [system.submit(kind, '{"seconds": 60}') for _ in range(5)]
    project.edit()
    project.reload()
    assert system.ended(short, 30).result == 1
    ended = [system.ended(each, 30) for each in (long, *waiting)]
    assert [each.result for each in ended] == [2] * 6
    assert {each.summary.failures for each in ended} == {0}
    assert "reloaded" in str(ended[0].attempts[0].error)


def test_handlers_that_cannot_be_imported_leave_the_earlier_ones_in_use(project: Project) -> None:
    project.file.write_text("import json\n\ndef broken(:\n")
    project.reload()
    wait_until(lambda: "handlers not reloaded" in project.system.logs(), "the worker says so")
    logs = project.system.logs()
    assert logs.count("module edited cannot be imported: SyntaxError") == 1
    assert 'edited.py", line 3' in logs
    assert "frozen importlib" not in logs
    time.sleep(1.0)  # longer than the pause after which executors that did not start are tried again
    assert project.system.logs().count("cannot be imported") == 1
    assert project.in_use() == 1
    project.edit()
    project.reload()
    wait_until(lambda: project.in_use() == 2, "the corrected handler is used")


def test_the_last_of_several_quick_reloads_counts(project: Project) -> None:
    for _ in range(5):
        project.edit()
        project.reload()
        time.sleep(0.05)
    wait_until(lambda: project.in_use() == 6, "the last edit is used")
    wait_until(lambda: len(project.system.executors(project.worker)) == 2, "the others have ended")
    assert [project.in_use() for _ in range(10)] == [6] * 10
