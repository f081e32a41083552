"""The variable that stops a process at a point: left empty it is not there, and a mistake in it is one clear line."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from firmq.shared import failpoints

START = """
from firmq.shared import failpoints
from firmq.shared.observability import logs
logs.configure('gateway', 'INFO', 'json')
print(failpoints.failpoint)
"""


def started(order: str | None) -> subprocess.CompletedProcess[str]:
    """A process with this in its environment, up to where it has begun to log."""
    others = {name: value for name, value in os.environ.items() if name != failpoints.VARIABLE}
    environment = others | ({} if order is None else {failpoints.VARIABLE: order})
    return subprocess.run(
        [sys.executable, "-c", START], env=environment, capture_output=True, text=True, timeout=60, check=False
    )


@pytest.mark.parametrize("order", [None, ""], ids=["not set", "empty"])
def test_without_an_order_a_process_starts_and_says_nothing(order: str | None) -> None:
    ended = started(order)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert "_nothing" in ended.stdout


@pytest.mark.parametrize(
    "order", ["yes", "executor.begin", "executor.begin:x:kill:/f", "executor.begin:1:stop:/f", "nowhere:1:kill:/f"]
)
def test_a_mistake_in_the_order_is_said_in_one_line(order: str) -> None:
    ended = started(order)
    assert ended.returncode == 2
    [line] = ended.stderr.splitlines()
    assert line.startswith(f"{failpoints.VARIABLE} ")
    assert line.endswith("do not set it in production")


def test_a_process_that_is_to_stop_says_so_when_it_starts() -> None:
    ended = started("executor.begin:1:kill:/tmp/never")
    assert ended.returncode == 0
    line = json.loads(ended.stderr)
    assert (line["level"], line["point"]) == ("WARNING", "executor.begin")
