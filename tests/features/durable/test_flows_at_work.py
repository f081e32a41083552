"""Long flows at workers and executors that are killed at random: no step is repeated once its result is stored."""

from __future__ import annotations

import json
import os
import random
import signal
import time
from pathlib import Path

from firmq.shared.domain.task import TaskDetail, TaskState
from firmq.shared.features.durable.signals import Signals
from tests.support.harness import System

MODULES = {"TASK_MODULES": "tests.features.durable.handlers"}
FLOWS = 20
KILLS = 8


def test_flows_survive_whatever_is_killed(system: System, tmp_path: Path) -> None:
    dice = random.Random(3)
    settings = {**MODULES, "MAX_CRASHES": "50", "WORKER_EXECUTORS": "2", "LEASE_TIME": "5"}
    workers = [system.start_worker(**settings) for _ in range(2)]
    system.start_housekeeper()
    folders = [tmp_path / str(number) for number in range(FLOWS)]
    for folder in folders:
        folder.mkdir()
    kinds = ["long-flow", "long-flow-async"]
    flows = [
        system.submit(kinds[number % 2], json.dumps({"folder": str(folder)})) for number, folder in enumerate(folders)
    ]
    for kill in range(KILLS):
        time.sleep(dice.uniform(0.2, 0.8))
        if kill == 2:
            _signal(system, flows, "signal-3")
        if kill == 5:
            _signal(system, flows, "signal-8")
        at = dice.randrange(2)
        executors = [*system.executors(workers[at], "serial"), *system.executors(workers[at], "concurrent")]
        if dice.random() < 0.5 and executors:
            os.kill(dice.choice(executors), signal.SIGKILL)
        else:
            workers[at].kill()
            workers[at].wait()
            workers[at] = system.start_worker(**settings)
    for flow, folder in zip(flows, folders, strict=True):
        _check(system.ended(flow, 120), folder)


def _signal(system: System, flows: list[str], name: str) -> None:
    for number, flow in enumerate(flows):
        for _ in range(2):
            Signals(system.scripts).send(flow, name, number, "Ann")


def _check(flow: TaskDetail, folder: Path) -> None:
    assert flow.summary.state is TaskState.COMPLETED, flow
    number = int(folder.name)
    names = [f"step-{at}" for at in range(10)]
    assert flow.result == [*names[:4], number, *names[4:9], number, names[9]]
    stored = {each.name: each for each in flow.steps}
    assert len(stored) == 15
    for name in names:
        attempts = list(map(int, (folder / name).read_text().split()))
        assert attempts[-1] == stored[name].attempt, "the function was not called after its result was stored"
        assert stored[name].value == {"name": name, "calls": len(attempts)}
