"""What a process does not import, it has not in memory: `make run` starts eleven of them."""

from __future__ import annotations

import subprocess
import sys


def test_an_executor_does_without_the_redis_driver() -> None:
    modules = "[name for name in sys.modules if name.partition('.')[0] == 'redis']"
    found = f"import sys, firmq.worker.executors.child; print({modules})"
    done = subprocess.run([sys.executable, "-c", found], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n", "it takes 13 MB of each"
