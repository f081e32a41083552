"""A disk whose fsync does not come back: the thread of Redis that calls it is stopped, and everything else runs on.

Linux only: the thread is held by ptrace, which needs the same user or root.
"""

from __future__ import annotations

import ctypes
import os
import signal
from contextlib import suppress
from pathlib import Path

_PTRACE_DETACH, _PTRACE_SEIZE, _PTRACE_INTERRUPT = 17, 0x4206, 0x4207
_WALL = 0x40000000
_THREADS = ("bio_aof", "bio_aof_fsync")
"""What Redis and Valkey call the thread that writes the append-only file to the disk."""

_libc = ctypes.CDLL(None, use_errno=True)
_libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
_libc.ptrace.restype = ctypes.c_long


class HeldFsync:
    """The fsync thread of one server, held from now on. Let go of it from the thread that made this."""

    def __init__(self, pid: int) -> None:
        """Raises LookupError when the server has no such thread, OSError when it may not be held."""
        self.pid = pid
        self.thread = _fsync_thread(pid)
        _ptrace(_PTRACE_SEIZE, self.thread)
        _ptrace(_PTRACE_INTERRUPT, self.thread)
        os.waitpid(self.thread, _WALL)

    def kill_server(self) -> None:
        """Ends the server as a crash would, before its fsync comes back; returns when it has ended."""
        with suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        self.let_go()
        with suppress(ChildProcessError):
            os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)

    def let_go(self) -> None:
        """Lets the thread run on; does nothing when the server was killed meanwhile."""
        with suppress(OSError):
            _ptrace(_PTRACE_DETACH, self.thread)
            return
        with suppress(ChildProcessError):
            os.waitpid(self.thread, _WALL)


def _fsync_thread(pid: int) -> int:
    for thread in Path(f"/proc/{pid}/task").iterdir():
        if (thread / "comm").read_text().strip() in _THREADS:
            return int(thread.name)
    raise LookupError(f"process {pid} has no thread that calls fsync")


def _ptrace(request: int, thread: int) -> None:
    if _libc.ptrace(request, thread, None, None) == -1:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))
