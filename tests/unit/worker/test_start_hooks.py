"""The time limit of hooks of a process that starts or stops."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest

from firmq.worker import start_hooks
from firmq.worker.handlers.hooks import Hook

STUCK = """
import ctypes
import signal
from firmq.worker import start_hooks
from firmq.worker.handlers.hooks import Hook

def stuck_in_c(about):
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGALRM])
    ctypes.PyDLL(None).pause()

start_hooks.run_started([Hook("executor_started", stuck_in_c, False)], None, None, 0.2)
"""


def sleep_long(about: object) -> None:
    time.sleep(60)


def test_a_hook_that_takes_too_long_fails() -> None:
    begun = time.monotonic()
    with pytest.raises(start_hooks.HookFailed, match=r"sleep_long failed: TimeoutError: it took longer than 0\.2 s"):
        start_hooks.run_started([Hook("worker_started", sleep_long, False)], None, lambda coroutine: None, 0.2)
    assert time.monotonic() - begun < 50, "it is not waited for to its end"
    start_hooks.run_stopping([Hook("worker_stopping", sleep_long, False)], None, lambda coroutine: None, 0.2)


def test_a_hook_that_cannot_be_interrupted_ends_its_process_and_shows_where_it_was() -> None:
    done = subprocess.run([sys.executable, "-c", STUCK], capture_output=True, text=True, timeout=90, check=False)
    assert done.returncode == 1
    assert "Timeout (0:00:01" in done.stderr
    assert "in stuck_in_c" in done.stderr
