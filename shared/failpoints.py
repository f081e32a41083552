"""Failpoints: named points between two steps at which a test can stop a process.

In production a failpoint calls an empty function (40 ns), bound when the process starts. A process started with
`FIRMQ_STOP_POINT=name:passing:how:flag` stops when it reaches the point `name` for the n-th time: by SIGKILL
(`kill`) or by SIGSTOP (`freeze`). It creates the file `flag` first and continues if the file exists, so that only one
process stops and its successor does not.
"""

from __future__ import annotations

import logging
import os
import re
import signal
import sys
import threading
from collections.abc import Callable

from firmq.shared.registry import FEATURES

log = logging.getLogger(__name__)

VARIABLE = "FIRMQ_STOP_POINT"
"""An environment variable for tests only, not a setting."""
_ORDER = re.compile(r"([^:]+):([1-9][0-9]{0,8}):(kill|freeze):(.+)", re.DOTALL)

POINTS = {
    "worker.before-sync": "outcomes are collected and not yet written to Redis",
    "worker.after-sync": "outcomes are written and tasks claimed, and no executor has them yet",
    "worker.handed-out": "executors have the claimed tasks",
    "worker.dispatched": "direct dispatch gave this worker a task that it has not read",
    "worker.begun-noted": "the start of an isolated task is recorded in Redis, and it has not begun",
    "worker.taken-back": "a task was taken back from an executor and not yet returned to its queue",
    "worker.reaped": "an executor died, and its task has not been reported",
    "executor.begin": "a start token was read, and the handler has not begun",
    "executor.done": "the handler has ended, and its outcome has not been sent",
    "executor.sent": "the worker has the outcome",
    "housekeeper.locked": "a job has its lock and has done nothing",
    "housekeeper.unlocking": "a job is done and holds its lock",
    "housekeeper.between-batches": "a job did some of its work",
    "unlock.between-batches": "some of the due tasks of a queue are moved",
    "leader.elected": "an instance is elected leader and has not published it",
    "gateway.stored": "a task is stored, and the response has not been sent",
    "gateway.batch-begun": "a batch with a key has begun, and none of it is stored",
    "gateway.batch-opened": "a batch is stored, and its `then` task is not",
    "gateway.chunk-stored": "part of a batch is stored",
    "gateway.requeued": "a dead letter was requeued, and the response has not been sent",
    "gateway.cancelled": "a task was cancelled, and the response has not been sent",
}
"""The failpoints of the core; a feature's begin with its name."""


def _nothing(name: str) -> None:
    pass


class Trap:
    """Stops this process when it reaches one point for the n-th time."""

    def __init__(self, order: str) -> None:
        """Parses the order. Raises ValueError when it is malformed or names an unknown point."""
        match = _ORDER.fullmatch(order)
        if not match:
            raise ValueError(f"must be name:passing:how:flag, such as executor.begin:1:kill:/tmp/flag, got {order!r}")
        self.name, self.left, self.how, self.flag = match[1], int(match[2]), match[3], match[4]
        if self.name not in POINTS and self.name.split(".")[0] not in FEATURES:
            raise ValueError(f"names an unknown failpoint {self.name!r}")
        self.lock = threading.Lock()

    def __call__(self, name: str) -> None:
        if name != self.name:
            return
        with self.lock:
            self.left -= 1
            if self.left != 0 or not self._first():
                return
        os.kill(os.getpid(), signal.SIGSTOP if self.how == "freeze" else signal.SIGKILL)

    def _first(self) -> bool:
        try:
            os.close(os.open(self.flag, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return False
        return True


def _ordered() -> Callable[[str], None]:
    """Returns the failpoint function; exits with status 2 on a mistake, because modules bind it at import."""
    order = os.environ.get(VARIABLE, "")
    try:
        return Trap(order) if order else _nothing
    except ValueError as error:
        print(f"{VARIABLE} {error}; do not set it in production", file=sys.stderr)
        raise SystemExit(2) from None


def warn() -> None:
    """Logs a warning when a failpoint is active in this process."""
    if isinstance(failpoint, Trap):
        log.warning("failpoint active: this process will stop for a test", extra={"point": failpoint.name})


failpoint: Callable[[str], None] = _ordered()
