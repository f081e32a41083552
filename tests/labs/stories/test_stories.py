"""The stories on fewer tasks; `python -m tests.labs.stories` plays them on 40,000."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

import pytest

from tests.support.harness import ROOT


@pytest.mark.skipif(not shutil.which("chromium") and os.environ.get("CI") != "true", reason="chromium is missing")
def test_each_story_takes_the_clicks_that_the_documentation_tells() -> None:
    command = [sys.executable, "-m", "tests.labs.stories", "--tasks", "1500"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
