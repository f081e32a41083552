"""Some seconds of the laboratory; `python -m tests.labs.rq_jobs` runs 10,000 jobs and kills 50 workers."""

from __future__ import annotations

import subprocess
import sys

from tests.support.harness import ROOT


def test_no_job_of_an_rq_program_is_lost_whatever_is_killed() -> None:
    command = [sys.executable, "-m", "tests.labs.rq_jobs", "--jobs", "800", "--kills", "6", "--restarts", "1"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=250, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "killed: 1 Redis, 6 workers" in done.stdout
