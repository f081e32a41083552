"""Processes that this one starts: the end of a child, and children that must not outlive their parent."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Callable

_PR_SET_PDEATHSIG = 1


def describe_exit(status: int) -> str:
    """Returns a return code in words: "ended with status 3", "was killed by SIGKILL"."""
    if status >= 0:
        return f"ended with status {status}"
    try:
        return f"was killed by {signal.Signals(-status).name}"
    except ValueError:
        return f"was killed by signal {-status}"


def dies_with_us() -> Callable[[], None] | None:
    """Returns a `preexec_fn` after which the kernel sends the child SIGTERM when its parent ends, even by kill -9.

    Returns None on other systems than Linux. The kernel watches the *thread* that forked, so call
    `Popen` from one that lives as long as the child may: the main thread.
    """
    if sys.platform != "linux":
        return None
    # Found before the fork: a child between fork and exec should do no more than make system calls.
    prctl = ctypes.CDLL(None).prctl
    parent = os.getpid()

    def ask_the_kernel() -> None:
        prctl(_PR_SET_PDEATHSIG, int(signal.SIGTERM), 0, 0, 0)
        if os.getppid() != parent:  # it died before the request to the kernel, so no signal would come
            os._exit(1)

    return ask_the_kernel
