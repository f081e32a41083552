"""What belongs to a whole process and is the same for every task in it, unless a task before has changed it."""

from __future__ import annotations

import os
import resource
import signal
import socket
import sys
from collections.abc import Callable

LEFT = "LABORATORY_LEFT"
"""A variable of the environment that no task may find."""
_FEWEST_FILES = 64
_LOWEST_RECURSION = 900


def changed() -> list[str]:
    """Names what is not as a task may expect it."""
    return [name for name, is_changed in _CHECKS.items() if is_changed()]


def _folder_is_gone() -> bool:
    try:
        os.getcwd()
    except OSError:
        return True
    return False


def _umask() -> int:
    now = os.umask(0o022)
    os.umask(now)
    return now


_CHECKS: dict[str, Callable[[], bool]] = {
    "alarm": lambda: signal.getitimer(signal.ITIMER_REAL)[0] > 0,
    "mask": lambda: signal.SIGUSR1 in signal.pthread_sigmask(signal.SIG_BLOCK, []),
    "handler": lambda: signal.getsignal(signal.SIGUSR1) is signal.SIG_IGN,
    "output": lambda: sys.stdout is None or sys.stdout.closed,
    "files": lambda: resource.getrlimit(resource.RLIMIT_NOFILE)[0] < _FEWEST_FILES,
    "folder": _folder_is_gone,
    "umask": lambda: _umask() == 0o777,
    "environment": lambda: LEFT in os.environ,
    "recursion": lambda: sys.getrecursionlimit() < _LOWEST_RECURSION,
    "timeout": lambda: socket.getdefaulttimeout() is not None,
}
