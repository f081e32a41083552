"""Room for files and connections: what the system gives to who asks."""

from __future__ import annotations

import subprocess
import sys

from tests.support.harness import ROOT


def test_a_process_makes_room_for_files_as_far_as_it_may() -> None:
    code = (
        "import resource as r; from shared.http.bind import raise_file_limit as room; "
        "r.setrlimit(r.RLIMIT_NOFILE, (100, 300)); "
        "print(room(50), room(200), r.getrlimit(r.RLIMIT_NOFILE), room(400), r.getrlimit(r.RLIMIT_NOFILE))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "50 200 (200, 300) 300 (300, 300)"
