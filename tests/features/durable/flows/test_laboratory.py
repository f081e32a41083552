"""Some faults of the laboratory; `python -m tests.features.durable.flows` has all of them, and 500 pairs."""

from __future__ import annotations

import subprocess
import sys

from tests.support.harness import ROOT


def test_flows_are_exact_whatever_is_killed() -> None:
    command = [
        sys.executable,
        "-m",
        "tests.features.durable.flows",
        "--most",
        "8",
        "--double",
        "4",
        "--side-by-side",
        "2",
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=250, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "12 flows" in done.stdout
