"""What a process has, and what it passes on to those that it starts: a plain program beside handlers."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import decimal
import gc
import json
import locale
import multiprocessing
import os
import resource
import signal
import socket
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from firmq import task
from firmq.worker.executors.process_tree import MARK

OWN_SIGNALS = ("SIGHUP", "SIGINT", "SIGTERM", "SIGUSR1", "SIGUSR2")
"""The signals that an executor handles itself."""
LOOK = [sys.executable, "-m", "tests.support.plain_program"]
_DEATH_SIGNAL, _SUBREAPER = 2, 37


def surroundings() -> dict[str, Any]:
    """What a child inherits, from its kernel's and its interpreter's view."""
    about = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    kernel = ("SigIgn", "SigBlk", "Umask", "NoNewPrivs", "CapEff", "Cpus_allowed", "Seccomp", "Groups", "Uid")
    found: dict[str, Any] = {name: about[name].strip() for name in kernel if name in about}
    found |= {name: resource.getrlimit(getattr(resource, name)) for name in dir(resource) if name.startswith("RLIMIT_")}
    found["files"] = sorted(filter(None, map(_file, range(3, 40))))
    found["priority"] = os.getpriority(os.PRIO_PROCESS, 0)
    found["scheduler"] = os.sched_getscheduler(0)
    found["oom"] = Path("/proc/self/oom_score_adj").read_text()
    found["cwd"] = os.getcwd()
    found["stdin"] = os.readlink("/proc/self/fd/0")
    found["in the session of its parent"] = os.getsid(0) == os.getsid(os.getppid())
    found["in the group of its parent"] = os.getpgid(0) == os.getpgid(os.getppid())
    found["environment"] = sorted((name, value) for name, value in os.environ.items() if name != MARK)
    found["death signal"], found["subreaper"] = _prctl(_DEATH_SIGNAL), _prctl(_SUBREAPER)
    found["handlers"] = [str(signal.getsignal(number)) for number in range(1, 32)]
    return dict(json.loads(json.dumps(found)))


def _file(number: int) -> str | None:
    """Which kind of file a descriptor is; those that close by themselves when a program starts do not count."""
    with contextlib.suppress(OSError):
        return os.readlink(f"/proc/self/fd/{number}").partition("[")[0] if os.get_inheritable(number) else None
    return None


def _prctl(option: int) -> int:
    value = ctypes.c_int()
    ctypes.CDLL(None).prctl(option, ctypes.byref(value), 0, 0, 0)
    return value.value


def state() -> dict[str, str]:
    """The state of an interpreter and its process that code can change."""
    context = decimal.getcontext()
    own = {getattr(signal, name) for name in OWN_SIGNALS}
    found = {
        "signal handlers": [signal.getsignal(number) for number in range(1, 32) if number not in own],
        "timers": [signal.getitimer(each)[0] for each in (0, 1, 2)],
        "warnings": [each for each in warnings.filters if each[0] != "once"],
        "decimal": (context.prec, context.rounding, context.traps),
        "gc": (gc.isenabled(), gc.get_threshold(), gc.get_debug()),
        "interpreter": (sys.getrecursionlimit(), sys.getswitchinterval(), sys.get_int_max_str_digits()),
        "hooks": (sys.excepthook, sys.unraisablehook, sys.displayhook, sys.breakpointhook, threading.excepthook),
        "tracing": (sys.gettrace(), sys.getprofile(), threading.gettrace(), threading.getprofile()),
        "locale": locale.setlocale(locale.LC_ALL),
        "sockets": socket.getdefaulttimeout(),
        "threads": threading.stack_size(),
        "start method": multiprocessing.get_start_method(allow_none=True),
        "time zone": time.tzname,
        "policy": type(asyncio.get_event_loop_policy()),
        "affinity": os.sched_getaffinity(0),
        "user": (os.getresuid(), os.getresgid()),
    }
    return {name: str(value) for name, value in found.items()}


def _popen(**options: Any) -> dict[str, Any]:
    return dict(json.loads(subprocess.run(LOOK, capture_output=True, check=True, **options).stdout))


def _read(start: Callable[[int], int]) -> dict[str, Any]:
    """Returns what a child writes into a pipe, which `start` begins and which the child inherits."""
    reader, writer = os.pipe()
    os.set_inheritable(writer, True)
    pid = start(writer)
    os.close(writer)
    with open(reader) as file:
        said = dict(json.loads(file.read()))
    if pid:
        os.waitpid(pid, 0)
    return said


def _forked() -> dict[str, Any]:
    def start(writer: int) -> int:
        if pid := os.fork():
            return pid
        os.write(writer, json.dumps(surroundings()).encode())
        os._exit(0)

    return _read(start)


def _spawned() -> dict[str, Any]:
    def start(writer: int) -> int:
        actions = [(os.POSIX_SPAWN_DUP2, writer, 1)]
        return os.posix_spawn(sys.executable, LOOK, os.environ, file_actions=actions)

    return _read(start)


def _by_shell() -> dict[str, Any]:
    return _read(lambda writer: os.system(f"{' '.join(LOOK)} >&{writer}"))


def _pooled(method: str) -> dict[str, Any]:
    with multiprocessing.get_context(method).Pool(1) as pool:
        return dict(pool.apply(surroundings))


CHILDREN: dict[str, Callable[[], dict[str, Any]]] = {
    "popen": _popen,
    "popen with all files": lambda: _popen(close_fds=False),
    "fork": _forked,
    "posix_spawn": _spawned,
    "os.system": _by_shell,
    "forked pool": lambda: _pooled("fork"),
    "spawned pool": lambda: _pooled("spawn"),
}


async def from_a_coroutine() -> dict[str, Any]:
    """Returns what a program inherits that asyncio starts."""
    program = await asyncio.create_subprocess_exec(*LOOK, stdout=subprocess.PIPE)
    said, _ = await program.communicate()
    return dict(json.loads(said))


def everything() -> dict[str, Any]:
    """The state of this process, and what its children inherit."""
    return {"state": state(), **{how: start() for how, start in CHILDREN.items()}}


@task("everything-plain", timeout=60, max_retries=0)
def everything_plain() -> dict[str, Any]:
    return everything()


@task("everything-threaded", threads=True, timeout=60, max_retries=0)
def everything_threaded() -> dict[str, Any]:
    return everything()


@task("everything-async", timeout=60, max_retries=0)
async def everything_async() -> dict[str, Any]:
    found = {"state": state(), "asyncio": await from_a_coroutine()}
    for how, start in CHILDREN.items():
        found[how] = start() if how == "fork" else await asyncio.to_thread(start)
    return found


if __name__ == "__main__":
    if sys.argv[1:] == ["all"]:
        print(json.dumps({**everything(), "asyncio": asyncio.run(from_a_coroutine())}))
    else:
        print(json.dumps(surroundings()))
