"""Prometheus' own programs, where they are installed."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.harness import ROOT

FOLDER = ROOT / "k8s" / "monitoring"


def program(name: str) -> str:
    """Where `promtool` or `prometheus` is. Without it a test is skipped at a desk, and fails in CI."""
    found = shutil.which(name)
    if found is None:
        reason = f"{name} is not installed: on Debian and Ubuntu it comes with the package prometheus"
        if os.environ.get("CI") == "true":
            pytest.fail(reason)
        pytest.skip(reason)
    return found


def promtool(*arguments: str | Path) -> str:
    """What it says, once it is content."""
    done = subprocess.run(
        [program("promtool"), *map(str, arguments)], cwd=ROOT, capture_output=True, text=True, timeout=240, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr
