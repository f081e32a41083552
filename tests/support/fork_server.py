"""Starts parts of the product in processes that need not import it anew, which is most of what a start costs.

A fork server, `python -m tests.support.fork_server PART`, imports what the part imports. For each start it forks a
child that gets the environment and the log of the start and runs `firmq PART` from there. Only its parent, and the
command line and environment that /proc shows, are others. Where a variable is set that modules read while they are
imported, the part is started as it ships. Tests of acceptance, deployment, faults and `make run` do so always, and
all tests do with TEST_REAL_STARTS=1.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
MODULES = {
    "worker": ["firmq.worker.main"],
    "housekeeper": ["firmq.worker.housekeeping.main"],
    "gateway": ["firmq.gateway.serve", "firmq.gateway.app", "firmq.gateway.http.server", "gunicorn.arbiter"],
    "dashboard": ["firmq.dashboard.serve", "firmq.dashboard.app", "firmq.dashboard.server", "gunicorn.arbiter"],
}
"""The parts, and what each of them has imported once it serves."""
_READ_WHILE_LOADING = (
    *("FORWARDED_ALLOW_IPS", "LANG", "LC_", "LD_", "MALLOC", "OTEL_PYTHON_", "PORT", "PROMETHEUS_", "PYTHON"),
    *("FIRMQ_", "TZ", "WEB_CONCURRENCY"),
)
_LONGEST = 1 << 17


class ForkServers:
    """The fork servers of one test process, each started when it is first needed."""

    def __init__(self) -> None:
        self._servers: dict[str, _ForkServer] = {}

    def can_start(self, part: str, environment: Mapping[str, str]) -> bool:
        """Returns whether there is a fork server for it, and its modules would load the same in this environment."""
        names = {name for name in {**os.environ, **environment} if name.startswith(_READ_WHILE_LOADING)}
        return part in MODULES and all(environment.get(name) == os.environ.get(name) for name in names)

    def start(self, part: str, environment: Mapping[str, str], log: int) -> subprocess.Popen[bytes]:
        """Starts a part; what it writes goes to the file descriptor."""
        if part not in self._servers:
            self._servers[part] = _ForkServer(part)
        return self._servers[part].start(environment, log)

    def close(self) -> None:
        """Ends the fork servers, and what they started and still runs."""
        for server in self._servers.values():
            server.close()


class _ForkServer:
    def __init__(self, part: str) -> None:
        self.part = part
        self._lock = threading.Lock()
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.support.fork_server", part, str(theirs.fileno())],
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
            )

    def start(self, environment: Mapping[str, str], log: int) -> subprocess.Popen[bytes]:
        return _Child(self, self._ask([log], environment=dict(environment)))

    def exit_status(self, pid: int) -> int | None:
        """Returns how a child ended, as Popen would; None while it runs."""
        answer: int | None = self._ask([], pid=pid)
        return answer

    def close(self) -> None:
        self._control.close()
        self._process.wait()

    def _ask(self, descriptors: list[int], **question: Any) -> Any:
        with self._lock:
            socket.send_fds(self._control, [json.dumps(question).encode()], descriptors)
            answer = self._control.recv(_LONGEST)
        if not answer:
            raise RuntimeError(f"the fork server for {self.part} has ended: run it by hand to see why")
        return json.loads(answer)


class _Child(subprocess.Popen[bytes]):
    """A child of a fork server, to be used as if this process had started it."""

    def __init__(self, server: _ForkServer, pid: int) -> None:
        self.args = [sys.executable, "-m", "firmq", server.part]
        self.pid = pid
        self.returncode: int | None = None
        self.stdin = self.stdout = self.stderr = None
        self._server = server

    def __del__(self) -> None:
        """Says nothing of a process that nobody waited for: the fork server ends it."""

    def poll(self) -> int | None:
        if self.returncode is None:
            self.returncode = self._server.exit_status(self.pid)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None:
            ended = os.pidfd_open(self.pid)
            try:
                if not select.select([ended], [], [], timeout)[0]:
                    raise subprocess.TimeoutExpired(self.args, timeout or 0)
            finally:
                os.close(ended)
        status = self.poll()
        assert status is not None
        return status


# --- the fork server's process ---


def _serve(control: socket.socket) -> None:
    """Answers until the test process closes the socket or has ended; returns in each child that is to run the part."""
    children: set[int] = set()
    while True:
        said, descriptors, _, _ = socket.recv_fds(control, _LONGEST, 1)
        if not said:
            break
        question = json.loads(said)
        if "pid" in question:
            answer = _status_of(question["pid"], children)
        elif answer := os.fork():
            children.add(answer)
            os.close(descriptors[0])
        else:
            control.close()
            _become(question["environment"], descriptors[0])
            return
        control.send(json.dumps(answer).encode())
    for pid in children:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    raise SystemExit


def _status_of(pid: int, children: set[int]) -> int | None:
    ended, status = os.waitpid(pid, os.WNOHANG)
    if not ended:
        return None
    children.discard(pid)
    return os.waitstatus_to_exitcode(status)


def _become(environment: Mapping[str, str], log: int) -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(log)
    os.environ.clear()
    os.environ.update(environment)
    gc.enable()


def _load(part: str) -> None:
    # prometheus_client decides while it is imported whether several processes count together, as a gateway's do.
    if part == "gateway":
        os.environ["PROMETHEUS_MULTIPROC_DIR"] = "/nonexistent"
    gc.disable()  # until a child runs: objects that are not moved stay shared
    for module in MODULES[part]:
        importlib.import_module(module)
    gc.freeze()
    threads = len(os.listdir("/proc/self/task"))
    assert threads == 1, f"{part} starts threads while it is imported, and forks would lack them"


def _main(arguments: Sequence[str]) -> str:
    part, control = arguments
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the test process, which ends this one
    _load(part)
    _serve(socket.socket(fileno=int(control)))
    return part


if __name__ == "__main__":
    # Here, with nothing around it: the part ends as every program does, and Python tidies up.
    sys.argv[1:] = [_main(sys.argv[1:])]
    runpy.run_module("firmq", run_name="__main__", alter_sys=True)
