"""Names of settings that other systems have are answered with ours."""

from __future__ import annotations

import os
import subprocess
import sys
import threading

import pytest

from taskqueue.shared.config.foreign_names import hints
from tests.support.harness import ROOT, free_port


@pytest.mark.parametrize(
    ("name", "instead"),
    [
        ("DECKARD_HOUSEKEEPER_DISTRIBUTED_EXECUTION_LOCK_TTL", "set HOUSEKEEPER_DISTRIBUTED_EXECUTION_LOCK_TTL"),
        ("DECKARD_REDIS_PORT", "set REDIS_PORT"),
        ("DECKARD_REDIS_ADDRESS", "set REDIS_HOST, or REDIS_URL"),
        ("WORKFLOW_LOCK_ENABLED", "set HOUSEKEEPER_DISTRIBUTED_EXECUTION_ENABLED"),
        ("DECKARD_GRPC_PORT", "the README lists all settings"),
    ],
)
def test_a_name_of_another_system_is_answered_with_ours(name: str, instead: str) -> None:
    assert dict(hints({name: "secret", "PATH": "/bin", "REDIS_PORT": "1"})) == {name: instead}


@pytest.mark.parametrize("part", ["gateway", "worker", "housekeeper", "dashboard"])
def test_a_part_says_so_when_it_starts(part: str) -> None:
    environment = {
        **os.environ,
        "DECKARD_LOG_LEVEL": "debug-value",
        "REDIS_URL": f"redis://127.0.0.1:{free_port()}/0",
        **dict.fromkeys(("GATEWAY_PORT", "DASHBOARD_PORT", "WORKER_METRICS_PORT", "HOUSEKEEPER_METRICS_PORT"), "0"),
    }
    process = subprocess.Popen(
        [sys.executable, "-m", "taskqueue", part], cwd=ROOT, env=environment, stderr=subprocess.PIPE, text=True
    )
    end = threading.Timer(60, process.kill)
    end.start()
    try:
        assert process.stderr
        line = next((each for each in process.stderr if "DECKARD" in each), "nothing was said")
    finally:
        end.cancel()
        process.kill()
        process.wait()
    assert "DECKARD_LOG_LEVEL is not read: set LOG_LEVEL" in line
    assert "debug-value" not in line
