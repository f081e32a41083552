"""`firmq outbox`: the relay as a process, and what it does for operators."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from redis import Redis
from sqlalchemy import Engine
from sqlalchemy.orm import Session

from firmq import new_task, outbox
from firmq.outbox.sqlalchemy import SqlTable
from firmq.shared.redis.client import text
from firmq.shared.redis.scripts import Scripts
from firmq.shared.stores.presence import Presence
from firmq.shared.stores.task_types import TaskType, TaskTypes
from tests.integration.gateway.test_server import Running
from tests.integration.gateway.test_server import start as start_gateway
from tests.support.harness import ROOT, free_port, running_system, scrape, wait_until
from tests.support.keys import keys


class Command:
    """The command in processes of its own."""

    def __init__(self, engine: Engine, **environment: str) -> None:
        self.database = engine.url.render_as_string(hide_password=False)
        self.environment = {**os.environ, "OUTBOX_DATABASE": self.database, **environment}

    def start(self, *arguments: str, **environment: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "firmq", "outbox", *arguments],
            cwd=ROOT,
            env={**self.environment, **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *arguments: str, status: int = 0, **environment: str) -> str:
        process = self.start(*arguments, **environment)
        output, errors = process.communicate(timeout=60)
        assert process.returncode == status, errors
        return output + errors


@pytest.fixture
def gateway(redis_client: Redis, redis_url: str, tmp_path: Path) -> Iterator[Running]:
    strict = TaskType(name="strict", schema={"type": "string"})
    TaskTypes(redis_client).publish([TaskType(name="process", schema={}), strict])
    with running_system(redis_client, redis_url, tmp_path) as system:
        yield start_gateway(system)


@pytest.fixture
def command(engine: Engine, gateway: Running) -> Command:
    command = Command(engine, FIRMQ_URL=f"http://127.0.0.1:{gateway.port}")
    command.run("--create")
    command.run("--create")  # again
    return command


def write(engine: Engine, *tasks: dict[str, object]) -> list[str]:
    with Session(engine) as session, session.begin():
        return [outbox.add(session, each) for each in tasks]


def test_a_relay_sends_rows_to_a_gateway_and_shows_metrics(
    command: Command, engine: Engine, redis_client: Redis
) -> None:
    accepted = write(engine, new_task("process", 1), new_task("process", {"large": "x" * 50_000}))
    too_large = write(engine, new_task("process", "x" * 120_000))  # than MAX_BODY_BYTES of the gateway
    unfit = write(engine, new_task("strict", 1))
    after = write(engine, new_task("process", 2))
    port = free_port()
    relay = command.start(OUTBOX_METRICS_PORT=str(port))
    try:
        table = SqlTable(engine)
        wait_until(lambda: table.backlog().refused == 2 and not table.backlog().waiting, "all rows were sent")
        stored = [text(each) for each in redis_client.lrange(keys.rq_queue("normal"), 0, -1)]
        assert stored == accepted + after
        shown = scrape(port, 5)
        assert shown["firmq_outbox_rows", (("state", "refused"),)] == 2
        assert shown["firmq_outbox_sent_total", ()] == 3
        assert Presence(Scripts(redis_client)).silences()["relay"] < 60, "the doctor finds that it runs"
    finally:
        relay.send_signal(signal.SIGTERM)
        _, errors = relay.communicate(timeout=20)
    assert relay.returncode == 0
    assert "row refused" in errors
    listed = command.run("--refused").splitlines()
    assert [each.split()[0] for each in listed if each[:2] == "01"] == too_large + unfit
    assert re.search("Body too large.*", listed[0])
    assert "2 rows wait again" in command.run("--retry")
    assert SqlTable(engine).backlog().waiting == 2


@pytest.mark.parametrize(
    ("environment", "said"),
    [
        ({"OUTBOX_DATABASE": ""}, "no database: set OUTBOX_DATABASE"),
        ({"OUTBOX_DATABASE": "no url"}, "OUTBOX_DATABASE: must be like postgresql+psycopg://"),
        ({"OUTBOX_DATABASE": "sqlite:////no/such/folder.db"}, "unable to open database file"),
        ({"FIRMQ_URL": "ftp://there"}, "FIRMQ_URL must be the address of a gateway"),
    ],
)
def test_a_mistake_ends_the_command_with_what_to_do(tmp_path: Path, environment: dict[str, str], said: str) -> None:
    from sqlalchemy import create_engine

    command = Command(create_engine(f"sqlite:///{tmp_path / 'shop.db'}"), OUTBOX_METRICS_PORT="0")
    arguments = ["--refused"] if "folder" in str(environment) else []
    assert said in command.run(*arguments, status=2, **environment)


def test_a_password_is_not_shown(tmp_path: Path) -> None:
    from sqlalchemy import create_engine

    command = Command(create_engine("sqlite://"), FIRMQ_URL="ftp://there")
    said = command.run(status=2, OUTBOX_DATABASE="postgresql+psycopg://me:secret@127.0.0.1:1/shop")
    assert "127.0.0.1" in said
    assert "secret" not in said
