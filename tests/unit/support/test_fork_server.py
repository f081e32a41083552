"""Parts that a fork server starts begin, log and end as those that are started by their command."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.fork_server import MODULES, ForkServers

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere parts are started as they ship")


@pytest.fixture(scope="module")
def servers() -> Iterator[ForkServers]:
    running = ForkServers()
    yield running
    running.close()


def start(servers: ForkServers, part: str, log: Path, **environment: str) -> subprocess.Popen[bytes]:
    with log.open("wb") as file:
        return servers.start(part, {**os.environ, **environment}, file.fileno())


@pytest.mark.parametrize("part", MODULES)
def test_a_part_gets_its_environment_and_log_and_its_status_is_known(
    servers: ForkServers, part: str, tmp_path: Path
) -> None:
    process = start(servers, part, tmp_path / "log", REDIS_URL="nonsense")
    assert process.wait(90) == 2
    assert process.poll() == 2
    said = (tmp_path / "log").read_text()
    assert said.startswith("invalid settings:\n  REDIS_URL: ")
    assert "Traceback" not in said


def test_a_part_can_be_waited_for_and_killed(servers: ForkServers, tmp_path: Path) -> None:
    process = start(servers, "worker", tmp_path / "log", REDIS_URL="redis://127.0.0.1:1/0")
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(0.01)
    assert process.poll() is None
    process.kill()
    assert process.wait(90) == -signal.SIGKILL


def test_what_is_left_ends_with_the_fork_servers(tmp_path: Path) -> None:
    servers = ForkServers()
    process = start(servers, "worker", tmp_path / "log", REDIS_URL="redis://127.0.0.1:1/0")
    ended = os.pidfd_open(process.pid)
    servers.close()
    assert select.select([ended], [], [], 90)[0]
    os.close(ended)


def test_a_part_that_loads_differently_in_its_environment_is_started_by_its_command(servers: ForkServers) -> None:
    assert servers.can_start("worker", os.environ)
    assert servers.can_start("worker", {**os.environ, "LEASE_TIME": "7"})
    assert not servers.can_start("worker", {**os.environ, "FIRMQ_STOP_POINT": "executor.begin:1:kill:/flag"})
    assert not servers.can_start("worker", {**os.environ, "OTEL_PYTHON_CONTEXT": "another"})
    assert not servers.can_start("worker", {**os.environ, "PYTHONPATH": "/elsewhere"})
    assert not servers.can_start("firmq.shared.cli.main", os.environ)
