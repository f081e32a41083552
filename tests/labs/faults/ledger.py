"""What was asked, what was answered and what was done, written down outside Redis.

Times are nanoseconds of this machine's monotonic clock, which all processes share and nobody sets.
"""

from __future__ import annotations

import json
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from firmq.worker.executors.ipc import CONCURRENT

EXECUTIONS = "executions"
REQUESTS = "requests"


@dataclass(slots=True)
class Asked:
    """A task that a client sent: what for, and what it was told."""

    n: int
    kind: str
    about: dict[str, Any]
    sent_ns: int
    keyed: bool
    said: str = ""
    """accepted, refused, or nothing: then nobody knows whether it is stored."""
    task_id: str = ""
    told_ns: int = 0
    gateway: str = ""


@dataclass(slots=True)
class Execution:
    """One run of a handler, as the handler tells it."""

    task_id: str
    attempt: int
    pid: int
    worker: int
    start_ns: int
    last_ns: int
    end: str = ""
    """Empty: it ended with its process, or was never seen to end."""
    concurrent: bool = False
    """Whether its executor may have run others beside it."""
    wrong: list[str] = field(default_factory=list)
    left: list[int] = field(default_factory=list)
    """Processes that it left behind."""


@dataclass(frozen=True, slots=True)
class Deed:
    """Something else that a client did to a task: cancelled it, or sent it back from the dead letters."""

    what: str
    task_id: str
    sent_ns: int
    told_ns: int
    status: int


class Ledger:
    """Files in one folder, and the same in memory."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.asked: dict[int, Asked] = {}
        self.deeds: list[Deed] = []
        self.batches: dict[str, list[int]] = {}
        self.followers: dict[str, int] = {}
        self.foreign: dict[str, str] = {}
        """Jobs that a program of RQ's put into our queues: their queue by their id."""
        self.odd: list[str] = []
        self._lock = threading.Lock()
        (folder / EXECUTIONS).touch()
        self._file = (folder / REQUESTS).open("a")

    def ask(self, kind: str, about: dict[str, Any], *, keyed: bool) -> Asked:
        """A number for a task that is about to be sent."""
        with self._lock:
            asked = Asked(len(self.asked) + 1, kind, about, time.monotonic_ns(), keyed)
            self.asked[asked.n] = asked
        return asked

    def told(self, asked: Asked, said: str, task_id: str = "", gateway: str = "") -> None:
        """What became of it."""
        asked.said, asked.task_id, asked.gateway, asked.told_ns = said, task_id, gateway, time.monotonic_ns()
        self._write("told", asdict(asked))

    def did(self, deed: Deed) -> None:
        self.deeds.append(deed)
        self._write("did", asdict(deed))

    def strange(self, what: str) -> None:
        """An answer that nobody should ever get."""
        self.odd.append(what)
        self._write("strange", {"what": what})

    def _write(self, what: str, about: dict[str, Any]) -> None:
        with self._lock:
            print(what, json.dumps(about), file=self._file, flush=True)

    @property
    def accepted(self) -> dict[str, Asked]:
        """By id."""
        return {each.task_id: each for each in list(self.asked.values()) if each.said == "accepted"}

    def executions(self) -> list[Execution]:
        """What the handlers wrote until now, in the order in which they began."""
        found: list[Execution] = []
        latest: dict[tuple[str, int, int], Execution] = {}
        for what, task_id, attempt, pid, worker, at, detail in self._lines():
            key = (task_id, attempt, pid)
            if what == "start":
                latest[key] = Execution(task_id, attempt, pid, worker, at, at, concurrent=detail == CONCURRENT)
                found.append(latest[key])
            elif key in latest:
                _go_on(latest[key], what, at, detail)
        return sorted(found, key=lambda each: each.start_ns)

    def by_task(self) -> dict[str, list[Execution]]:
        grouped = defaultdict(list)
        for each in self.executions():
            grouped[each.task_id].append(each)
        return dict(grouped)

    def _lines(self) -> Iterator[tuple[str, str, int, int, int, int, str]]:
        for line in (self.folder / EXECUTIONS).read_text().splitlines():
            what, task_id, attempt, pid, worker, at, *detail = line.split(" ")
            yield what, task_id, int(attempt), int(pid), int(worker), int(at), "".join(detail)


def _go_on(execution: Execution, what: str, at: int, detail: str) -> None:
    execution.last_ns = at
    if what == "end":
        execution.end = detail
    elif what == "wrong":
        execution.wrong.append(detail)
    elif what == "left":
        execution.left.append(int(detail))
