"""Runs a flow again and again, each time with faults at other places, and compares what ran with what is stored."""

from __future__ import annotations

import itertools
import json
import random
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

from firmq.shared.domain.task import TaskDetail, TaskState
from firmq.shared.failpoints import VARIABLE
from firmq.shared.features.durable.signals import Signals
from firmq.shared.local.embedded_redis import EmbeddedRedis
from firmq.shared.redis.client import connect
from tests.support.harness import running_system
from tests.support.keys import keys

STEPS, CHILDREN = 10, 5
SIGNALS = ("signal-3", "signal-8")
STORED = STEPS + 3 + len(SIGNALS) + 2
"""Steps of a flow: also its sleeps and waits, and the start and the end of its children."""
PASSINGS = {
    "durable.computed": STORED,
    "durable.stored": STORED,
    "executor.begin": 12,
    "executor.done": 12,
    "executor.sent": 12,
    "worker.before-sync": 20,
    "worker.after-sync": 12,
    "worker.handed-out": 12,
    "worker.dispatched": 6,
}
"""How often a flow without faults reaches each point, about: seven attempts, and its children."""

Fault = tuple[str, int]
"""A failpoint, and at which passing of it the process is killed."""


def single_faults() -> list[tuple[Fault, ...]]:
    """Returns each fault alone."""
    return [((point, at),) for point, most in PASSINGS.items() for at in range(1, most + 1)]


def double_faults(number: int, dice: random.Random) -> list[tuple[Fault, ...]]:
    """Returns so many pairs of faults, each of another worker."""
    faults = list(itertools.chain.from_iterable(single_faults()))
    return [tuple(dice.sample(faults, 2)) for _ in range(number)]


@dataclass(slots=True)
class Report:
    """What runs have shown."""

    runs: int = 0
    struck: int = 0
    """Runs in which each fault came to pass."""
    attempts: int = 0
    repeated: int = 0
    """Calls of functions of steps whose result was not stored."""
    findings: list[str] = field(default_factory=list)

    def __add__(self, other: Report) -> Report:
        return Report(
            self.runs + other.runs,
            self.struck + other.struck,
            self.attempts + other.attempts,
            self.repeated + other.repeated,
            self.findings + other.findings,
        )

    def __str__(self) -> str:
        counts = (
            f"{self.runs} flows, {self.struck} of them met all of their faults; {self.attempts} attempts, "
            f"{self.repeated} steps were called again before a result was stored; {len(self.findings)} findings"
        )
        return "\n".join([counts, *self.findings])


class Laboratory:
    """One Redis and one housekeeper, on which flows run one after the other, each for `longest` seconds at most."""

    def __init__(self, longest: float) -> None:
        self.longest = longest

    def __enter__(self) -> Self:
        self.stack = ExitStack()
        self.folder = Path(self.stack.enter_context(tempfile.TemporaryDirectory(prefix="flows-")))
        server = self.stack.enter_context(EmbeddedRedis(data_dir=self.folder / "redis"))
        client = self.stack.enter_context(connect(server.url, timeout=5))
        settings = {
            "TASK_MODULES": "tests.features.durable.handlers_children",
            "MAX_CRASHES": "50",
            "WORKER_EXECUTORS": "2",
            "LEASE_TIME": "1",
        }
        self.system = self.stack.enter_context(running_system(client, server.url, self.folder, **settings))
        self.system.start_housekeeper()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stack.close()

    def run(self, faults: Sequence[Fault], number: int) -> Report:
        """Runs one flow to its end."""
        folder = self.folder / f"flow-{number}"
        folder.mkdir()
        workers = [self._worker(fault, folder, at) for at, fault in enumerate(faults)]
        flow = self.system.submit("full-flow", json.dumps({"folder": str(folder)}))
        end = time.monotonic() + self.longest
        try:
            while not self.system.records.state(flow).ended and time.monotonic() < end:
                self._signal(flow, number)
                workers = [each if each.poll() is None else self._start() for each in workers]
                time.sleep(0.02)
        finally:
            for each in workers:
                each.kill()
                each.wait()
        created = self._children(folder)
        found = self.system.records.get(flow)
        what = " and ".join(f"{point} at passing {at}" for point, at in faults)
        findings = [f"{what}: {each}" for each in judge(found, folder, number, created)]
        struck = all((folder / f"fault-{at}").exists() for at in range(len(faults)))
        return Report(1, struck, found.summary.attempt, _repeated(folder), findings)

    def _children(self, folder: Path) -> int:
        """Returns how many children there are whose data names the folder."""
        ids: list[bytes] = self.system.redis.zrange(keys.tasks_of_type("child"), -200, -1)  # type: ignore[assignment]
        data = [self.system.redis.hget(keys.rq_job(each.decode()), "data") or b"" for each in ids]
        return sum(f'"{folder}"'.encode() in bytes(each) for each in data)  # type: ignore[arg-type]

    def _worker(self, fault: Fault, folder: Path, at: int) -> subprocess.Popen[bytes]:
        point, passing = fault
        return self._start(**{VARIABLE: f"{point}:{passing}:kill:{folder / f'fault-{at}'}"})

    def _start(self, **environment: str) -> subprocess.Popen[bytes]:
        return self.system.start("worker", **environment)

    def _signal(self, flow: str, number: int) -> None:
        """Sends the first signal at once, the second one when it is waited for; each of them twice."""
        found = self.system.records.get(flow)
        for name in SIGNALS:
            if (name == SIGNALS[0] or found.summary.awaits == f"signal:{name}") and not found.summary.state.ended:
                Signals(self.system.scripts).send(flow, name, number, "Ann")


def judge(flow: TaskDetail, folder: Path, number: int, created: int) -> Iterator[str]:
    """Yields what is wrong with a flow."""
    names = [f"step-{at}" for at in range(STEPS)]
    if flow.summary.state is not TaskState.COMPLETED:
        yield f"it is {flow.summary.state}, not completed: {flow.attempts[-1:]}"
        return
    tens = [10 * each for each in range(CHILDREN)]
    if flow.result != [*names[:4], number, *names[4:6], *tens, *names[6:9], number, names[9]]:
        yield f"its result is {flow.result}"
    yield from _judge_steps(flow, folder, names)
    if created != CHILDREN:
        yield f"{created} children were created, not {CHILDREN}"
    for child in range(CHILDREN):
        if not _calls(folder, f"child-{child}"):
            yield f"child {child} never ran"


def _judge_steps(flow: TaskDetail, folder: Path, names: Sequence[str]) -> Iterator[str]:
    stored = {each.name: each for each in flow.steps}
    if len(stored) != STORED:
        yield f"it has {len(stored)} steps, not {STORED}: {sorted(stored)}"
    for name in names:
        calls = _calls(folder, name)
        if name not in stored or calls[-1] != stored[name].attempt:
            yield f"{name} was called in attempts {calls}, after its result was stored"
        elif stored[name].value != {"name": name, "calls": len(calls)}:
            yield f"{name} was called in attempts {calls}, and its result is {stored[name].value}"


def _calls(folder: Path, name: str) -> list[int]:
    """The attempts in which a function was called."""
    path = folder / name
    return list(map(int, path.read_text().split())) if path.exists() else []


def _repeated(folder: Path) -> int:
    return sum(max(0, len(_calls(folder, f"step-{at}")) - 1) for at in range(STEPS))
