"""A flow that writes down each value that it was given: what Redis has lost, and others have seen, differs there."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from firmq import current_task, gather, new_task, sleep, stable_id, start_children, step, task, wait_for

PHASES = tuple(tuple(f"s{phase}-{at}" for at in range(4)) for phase in range(4))


@task("watched-child")
def watched_child(number: int) -> int:
    """Returns ten times its number."""
    return number * 10


def _made(name: str, seconds: float) -> str:
    time.sleep(seconds)
    return f"{name} of attempt {current_task().attempt} at {time.time_ns()}"


def _watched(folder: str, seconds: float) -> str:
    def see(name: str, value: Any) -> None:
        with Path(folder, f"{current_task().id}-{name}").open("a") as file:
            file.write(json.dumps(value) + "\n")

    for at, phase in enumerate(PHASES):
        for name in phase:
            see(name, step(name, _made, name, seconds))
        if at == 0:
            sleep(0.5, "nap")
            see("id", stable_id())
        elif at == 1:
            see("signal", wait_for("go"))
        elif at == 2:
            children = start_children("children", [new_task("watched-child", {"number": each}) for each in range(3)])
            see("children", children.ids)
            see("results", gather(children))
    return "done"


@task("watched-flow", max_retries=0)
def watched_flow(folder: str) -> str:
    """Runs in an executor of its own."""
    return _watched(folder, 0.4)


@task("watched-flow-threads", max_retries=0, threads=True)
def watched_flow_threads(folder: str) -> str:
    """Runs in a thread of an executor that runs many."""
    return _watched(folder, 1.2)
