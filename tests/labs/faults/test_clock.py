"""The clock that the laboratory sets is the one that a process and its children see, and no other process."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.labs.faults.site import CLOCK, set_clock

PROGRAM = """
import datetime, subprocess, sys, time
before = time.monotonic()
show = "import datetime, time; print(time.time(), time.time_ns() / 1e9, datetime.datetime.now().timestamp(), end=' ')"
for _ in sys.stdin:
    subprocess.run([sys.executable, "-c", show])
    exec(show)
    print(datetime.datetime.now(datetime.UTC).timestamp(), time.monotonic() - before, flush=True)
"""


def test_a_set_clock_leaves_the_monotonic_clock_alone(tmp_path: Path) -> None:
    clock = tmp_path / "clock"
    set_clock(clock, 600)
    process = subprocess.Popen(
        [sys.executable, "-u", "-c", PROGRAM],
        env={**os.environ, "PYTHONPATH": str(CLOCK), "FAULTS_CLOCK": str(clock)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        assert process.stdin
        assert process.stdout
        for seconds in (600, -600, 0):
            set_clock(clock, seconds)
            process.stdin.write("now\n")
            process.stdin.flush()
            *shown, passed = map(float, process.stdout.readline().split())
            assert len(shown) == 7
            assert shown == pytest.approx([time.time() + seconds] * 7, abs=100)
            assert 0 <= passed < 100
        process.stdin.close()
