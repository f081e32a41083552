"""Some seconds of the laboratory; `python -m tests.labs.rq_jobs side-by-side` runs 1,000 jobs, and an hour in peace."""

from __future__ import annotations

import subprocess
import sys

from tests.labs.rq_jobs.side_by_side import Findings, due_times
from tests.support.harness import ROOT


def test_nothing_is_lost_beside_stock_rq_when_anything_is_killed() -> None:
    options = ["side-by-side", "--jobs", "60", "--kills", "3", "--minutes", "0.1", "--seed", "5"]
    command = [sys.executable, "-m", "tests.labs.rq_jobs", *options]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "lost 0" in done.stdout


def test_a_due_time_that_was_enqueued_twice_is_found() -> None:
    once = ["due-1 100.1", "cron-1 104.9", "cron-1 105.0", "interval-2 100.9", "interval-2 105.0"]
    assert len({*due_times(once)}) == 5
    for again in ("due-1 160.0", "cron-1 103.0", "interval-2 101.9", "interval-2 105.8"):
        assert len({*due_times([*once, again])}) == 5, again


def test_an_end_in_peace_and_a_repetition_without_a_kill_are_findings() -> None:
    assert Findings(fired=1).well
    assert not Findings(fired=1, ended=["rqscheduler with status 1"]).well
    assert not Findings(fired=1, twice=["cron-1 7"]).well
    assert not Findings(fired=1, lost=["job-1 started"]).well
