"""A project of a user's own passes `mypy --strict` with the wheel that we build."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

from tests.support.harness import ROOT

TASKS = """
from typing import assert_type

from worker import GiveUp, RetryLater, current_task, report_progress, task


@task("send-invoice", timeout=30, max_retries=5, give_up_on=[KeyError], concurrency=2, rate="10/s")
def send_invoice(order: int, copies: int = 1) -> str:
    if order < 0:
        raise GiveUp(f"there is no order {order}")
    if copies > 9:
        raise RetryLater(60)
    report_progress(0.5, "rendering")
    return f"invoice {order} by {current_task().id}"


@task("fetch")
async def fetch(url: str) -> int:
    return len(url)


assert_type(send_invoice(7), str)
"""
CALLER = """
from typing import assert_type

from shared.client import AsyncBatchFeed, AsyncClient, Client, Task, new_task
from shared.client.answers import Accepted, BatchItem
from shared.client.interface import TaskClient
from worker.local import LocalClient


def send(queue: TaskClient) -> Accepted:
    return queue.submit("send-invoice", {"order": 7}, priority="high", tags=["shop"])


with Client("http://localhost:8000") as queue:
    assert_type(send(queue), Accepted)
    for item in queue.batch([new_task("send-invoice", {"order": n}) for n in range(3)]):
        assert_type(item, BatchItem)
send(LocalClient(["shop.tasks"]))


async def send_async() -> None:
    async with AsyncClient() as queue:
        assert_type(await queue.submit("send-invoice", {"order": 7}, priority="high"), Accepted)
        feed = await queue.batch(new_task("send-invoice", {"order": n}) for n in range(3))
        assert_type(feed, AsyncBatchFeed)
        assert_type([item async for item in feed], list[BatchItem])
        assert_type([task async for task in queue.tasks(tag="shop")], list[Task])
        assert_type([queue.name for queue in await queue.queues.all()], list[str])
"""


def run(*command: str | Path, folder: Path) -> str:
    done = subprocess.run(command, check=False, cwd=folder, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def test_handlers_and_callers_of_a_user_pass_mypy_strict_with_the_wheel(tmp_path: Path) -> None:
    run(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", tmp_path, ROOT, folder=tmp_path)
    [wheel] = tmp_path.glob("taskqueue-*.whl")
    run(sys.executable, "-m", "venv", "--without-pip", tmp_path / "venv", folder=tmp_path)
    [packages] = (tmp_path / "venv" / "lib").glob("python*/site-packages")
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        archive.extractall(packages)
    assert {f"{package}/py.typed" for package in ("gateway", "worker", "dashboard", "shared")} <= names
    (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib"))
    project = tmp_path / "project" / "shop"
    project.mkdir(parents=True)
    for name, text in (("__init__", ""), ("tasks", TASKS), ("caller", CALLER)):
        (project / f"{name}.py").write_text(text)
    mypy = (sys.executable, "-m", "mypy", "--strict", "--python-executable", tmp_path / "venv" / "bin" / "python")
    assert "Success" in run(*mypy, "-p", "shop", folder=project.parent)
