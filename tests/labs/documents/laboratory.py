"""Tries each row of `rows.yaml` on a running system, as it is written.

`localhost:8000` and the like are replaced by the ports of this run, and `redis-cli` by a program that sends the same
command to its Redis. A row that differs names the page that says what to type here.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from firmq.shared.config.settings import load
from firmq.shared.errors import SettingsError
from tests.acceptance.running import Product, product
from tests.support.harness import ROOT, wait_until

ROWS = Path(__file__).parent / "rows.yaml"
NOT_TRIED = "not tried here"
_REDIS_CLI = """#!{python}
import os, sys
import redis
words = sys.argv[1:]
while words[0] in ("-h", "-p"):
    del words[:2]
connection = redis.Redis.from_url(os.environ["STORE"], protocol=2).connection_pool.get_connection()
connection.send_command(*words)
def show(reply):
    for each in reply if isinstance(reply, list) else [reply]:
        if isinstance(each, list):
            show(each)
        else:
            print("(nil)" if each is None else each.decode() if isinstance(each, bytes) else each)
show(connection.read_response())
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """What a document says, how it is tried, and what is to come of it."""

    document: str
    text: str
    kind: str
    """sh: a command; http: a request; log: a line of the log; env, yaml: settings; none: not tried here."""
    shows: str = ""
    """A regular expression that the output has."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """What settings are read as."""
    differs: str = ""
    """The page that says what to type in place of it."""
    says: str = ""
    """What that page says."""
    task: str = "done"
    """Whose id stands for {TASK_ID}: that of a task that is done, or of a dead letter."""
    why: str = ""
    """Why it is not tried here."""


@dataclass(frozen=True, slots=True)
class Tried:
    """A row, what came of it, and what is wrong with that."""

    row: Row
    verdict: str
    wrong: str = ""


def rows() -> list[Row]:
    """Reads the rows."""
    return [Row(**each) for each in yaml.safe_load(ROWS.read_text())]


@contextmanager
def system(folder: Path) -> Iterator[Product]:
    """A system whose housekeeper takes locks and logs them."""
    with product(folder, HOUSEKEEPER_DISTRIBUTED_EXECUTION_ENABLED="true", LOG_LEVEL="DEBUG") as running:
        yield running


def try_all(running: Product, folder: Path) -> Iterator[Tried]:
    """Tries the rows in their order."""
    shim = folder / "redis-cli"
    shim.write_text(_REDIS_CLI.format(python=sys.executable))
    shim.chmod(0o755)
    for row in rows():
        yield _tried(row, running, folder)


def _tried(row: Row, running: Product, folder: Path) -> Tried:
    if row.kind == "none":
        return Tried(row, f"{NOT_TRIED}: {row.why}", "" if row.why else "it has no reason")
    try:
        wrong = _settings(row, folder) if row.kind in ("env", "yaml") else _output(row, running, folder)
    except (SettingsError, subprocess.SubprocessError, TimeoutError) as error:
        wrong = str(error)
    if not row.differs:
        return Tried(row, "as written", wrong)
    page = " ".join((ROOT / row.differs.partition("#")[0]).read_text().split())
    return Tried(row, f"differs: {row.differs}", wrong or ("" if row.says in page else f"the page lacks {row.says}"))


def _settings(row: Row, folder: Path) -> str:
    """Reads settings as a process would. Returns what is wrong."""
    if row.kind == "yaml":
        file = folder / "application.yaml"
        file.write_text(row.text)
        found = load({"CONFIG_FILE": str(file)})
    else:
        command = ["env", "-i", "bash", "-c", f"set -a; {row.text}\nenv -0"]
        given = subprocess.run(command, capture_output=True, text=True, check=True, timeout=30).stdout
        names = re.findall(r"^\s*([A-Z_]+)=", row.text, re.MULTILINE)
        found = load(
            {name: value for name, _, value in (each.partition("=") for each in given.split("\0")) if name in names}
        )
    read = {name: value for name, value in found.model_dump(mode="json").items() if name in row.settings}
    return "" if read == dict(row.settings) else f"it is read as {read}"


def _output(row: Row, running: Product, folder: Path) -> str:
    """Runs a command or sends a request, until its output is right. Returns what is wrong."""
    if row.kind == "log":
        wait_until(lambda: re.search(row.shows, running.log.read_text()), row.shows, 30)
        return ""
    text = row.text.replace("{TASK_ID}", _task(row.task, running)).replace("docker-compose", "docker compose")
    if row.kind == "http":
        method, path = text.split()
        answer = running.api.request(method, path)
        shown = f"{answer.status_code} {answer.text}"
    else:
        for name, usual in (("GATEWAY_PORT", 8000), ("DASHBOARD_PORT", 5001)):
            text = text.replace(f"localhost:{usual}", f"127.0.0.1:{running.ports[name]}")
        there = {"PATH": f"{folder}:/usr/bin:/bin", "STORE": running.redis_url, "HOME": os.environ.get("HOME", "/")}
        done = subprocess.run(["bash", "-c", text], env=there, capture_output=True, text=True, timeout=60, check=False)
        shown = done.stdout
    return "" if re.search(row.shows, shown, re.DOTALL) else f"it shows {shown[:300]!r}"


def _task(which: str, running: Product) -> str:
    """Returns the id of a task that is done, or of a new dead letter."""
    body = {"type": "process", "data": "a word" if which == "done" else "", "max_retries": 0}
    task_id = str(running.api.post("/tasks", json=body).json()["task_id"])
    running.api.get(f"/tasks/{task_id}/result", params={"wait": 15})
    return task_id
