"""Named points between two steps at which a test can stop a process, to see what whoever comes after finds.

In production a point is a call of nothing: 40 ns, bound when the process starts. A process that is started with
`TASKQUEUE_STOP_POINT=name:passing:how:flag` stops when it comes by the point `name` for the n-th time: it is killed
as by kill -9 (`kill`) or stands still as by SIGSTOP (`freeze`). It makes the file `flag` first and does nothing where
that is there already, so that one process stops, and not its successor too.
"""

from __future__ import annotations

import logging
import os
import re
import signal
import sys
import threading
from collections.abc import Callable

log = logging.getLogger(__name__)

VARIABLE = "TASKQUEUE_STOP_POINT"
"""No setting: only tests know it."""
_ORDER = re.compile(r"([^:]+):([1-9][0-9]{0,8}):(kill|freeze):(.+)", re.DOTALL)

POINTS = {
    "worker.before-exchange": "outcomes are gathered, and Redis has not been told",
    "worker.after-exchange": "Redis has answered: outcomes are written, tasks claimed and not handed out",
    "worker.handed-out": "executors have what was claimed",
    "worker.handover": "somebody submitted a task right to this worker, which has not looked at it",
    "worker.suspect-noted": "Redis knows that a suspect begins, and it has not",
    "worker.taken-back": "a task was taken back from an executor and not given back to its queue",
    "worker.buried": "an executor died, and what it ran has not been reported",
    "executor.begin": "a ticket was read, and the handler has not begun",
    "executor.done": "the handler has ended, and nobody knows",
    "executor.told": "the worker has the outcome",
    "housekeeper.locked": "a job has its lock and has done nothing",
    "housekeeper.unlocking": "a job is done and holds its lock",
    "housekeeper.between-batches": "a job did some of its work",
    "unlock.between-batches": "some of the due tasks of a queue are moved",
    "leader.elected": "an instance leads, and nobody has heard of it",
    "gateway.stored": "a task is stored, and its sender has not been told",
    "gateway.batch-begun": "a batch with a key has begun, and nothing of it is stored",
    "gateway.batch-opened": "a batch is there, and what follows it is not",
    "gateway.chunk-stored": "part of a batch is stored",
    "gateway.requeued": "a dead letter was sent back, and nobody has been told",
    "gateway.cancelled": "a task was cancelled, and nobody has been told",
    "dashboard.bulk-taken": "a bulk action has its next dead letters and has done nothing",
    "dashboard.bulk-acted": "dead letters were sent back, and the bulk action has not counted them",
}


def _nothing(name: str) -> None:
    pass


class Trap:
    """Stops this process at one passing of one point."""

    def __init__(self, order: str) -> None:
        """Raises ValueError."""
        match = _ORDER.fullmatch(order)
        if not match:
            raise ValueError(f"must be name:passing:how:flag, such as executor.begin:1:kill:/tmp/flag, got {order!r}")
        self.name, self.left, self.how, self.flag = match[1], int(match[2]), match[3], match[4]
        if self.name not in POINTS:
            raise ValueError(f"there is no stop point {self.name!r}")
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
    """What the environment asks for; a mistake there ends the process, since parts bind this while they load."""
    order = os.environ.get(VARIABLE, "")
    try:
        return Trap(order) if order else _nothing
    except ValueError as error:
        print(f"{VARIABLE} {error}; in production leave it out", file=sys.stderr)
        raise SystemExit(2) from None


def warn() -> None:
    """Says in the log that this process is to stop, which nobody wants outside tests."""
    if isinstance(stop_point, Trap):
        log.warning("this process will stop at a stop point, for a test", extra={"point": stop_point.name})


stop_point: Callable[[str], None] = _ordered()
