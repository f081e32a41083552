"""A handler's process and its children are as those of a plain Python program."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from redis import Redis

from tests.support.harness import System, running_system
from tests.support.plain_program import OWN_SIGNALS

MODULE = "tests.support.plain_program"


@pytest.fixture
def system(redis_client: Redis, redis_url: str, tmp_path: Path) -> Iterator[System]:
    with running_system(redis_client, redis_url, tmp_path, TASK_MODULES=MODULE) as system:
        yield system


def differences(seen: dict[str, Any], expected: dict[str, Any]) -> dict[str, Any]:
    return {name: (value, expected[name]) for name, value in seen.items() if value != expected[name]}


def handle_own_signals() -> None:
    """Also where they are ignored, as under nohup: a worker handles them, so its programs do not ignore them."""
    for name in OWN_SIGNALS:
        signal.signal(getattr(signal, name), signal.SIG_DFL)


def test_a_handler_and_its_children_have_what_a_plain_program_has(system: System) -> None:
    system.as_shipped = True
    worker = system.start_worker(LEASE_TIME="60", MAX_RESULT_BYTES="1000000")
    environment = dict(
        line.split("=", 1) for line in Path(f"/proc/{worker.pid}/environ").read_text().split("\0") if "=" in line
    )
    done = subprocess.run(
        [sys.executable, "-m", MODULE, "all"],
        cwd=os.readlink(f"/proc/{worker.pid}/cwd"),
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=True,
        start_new_session=True,
        preexec_fn=handle_own_signals,
    )
    plain = json.loads(done.stdout)

    def differs(kind: str) -> dict[str, Any]:
        ended = system.ended(system.submit(f"everything-{kind}", "{}"), 60)
        assert isinstance(ended.result, dict), ended.attempts
        return {what: found for what, seen in ended.result.items() if (found := differences(seen, plain[what]))}

    for kind in ("plain", "threaded", "async") * 2:
        found = differs(kind)
        for _ in range(20):  # a concurrent executor restores its state once it has been idle for a moment
            if found.keys() != {"state"}:
                break
            time.sleep(0.1)
            found = differs(kind)
        assert found == {}, kind
