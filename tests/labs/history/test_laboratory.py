"""Some seconds of the laboratory; `python -m tests.labs.history faults` runs five minutes, with a PostgreSQL."""

from __future__ import annotations

import re
import subprocess
import sys

from tests.support.harness import ROOT


def test_each_end_is_stored_once_whatever_is_killed() -> None:
    command = [sys.executable, "-m", "tests.labs.history", "faults", "--sqlite", "--seconds", "6"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=250, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"\d+ housekeepers killed", done.stdout)
