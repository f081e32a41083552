"""The benchmark's hand inside a system's environment: answers one JSON request a line on stdin.

The runner cannot import the systems (their dependencies contradict each other), so it starts this module with the
interpreter of the system's environment: `python -m tests.labs.bench.agent <system>`.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import time
from collections.abc import Callable
from functools import partial
from importlib.metadata import version
from typing import Any, cast

from tests.labs.bench.adapter import System
from tests.labs.bench.handlers import sheet

Request = dict[str, Any]
Answer = dict[str, Any]

SETTLE_PAUSE = 0.005
CHUNK = 1000


def describe(system: System, _: Request) -> Answer:
    versions = {package: version(package) for package in system.PACKAGES}
    about = {"title": system.TITLE, "workloads": system.WORKLOADS, "versions": versions}
    return {**about, "workers": system.workers()}


def enqueue(system: System, request: Request) -> Answer:
    """Enqueue the tasks from number `first` on as fast as the system takes them."""
    rest, first = request["args"], request["first"]
    end = first + request["count"]
    began = time.monotonic()
    for start in range(first, end, CHUNK):
        numbers = range(start, min(start + CHUNK, end))
        system.enqueue(request["kind"], [[number, *rest] for number in numbers])
    return {"seconds": time.monotonic() - began}


def pace(system: System, request: Request) -> Answer:
    """Submit single tasks at given moments; `late` is how far the submitter itself fell behind them."""
    stamps, late = sheet().submitted, 0.0
    zero = time.time() + 0.05
    for at, kind, args in request["plan"]:
        time.sleep(max(0.0, zero + at - time.time()))
        stamps[args[0]] = now = time.time()
        late = max(late, now - zero - at)
        system.submit(kind, args)
    return {"late": late}


def submit_each(system: System, request: Request) -> Answer:
    """Submit single tasks as fast as the system takes them; says how long each took, and all together."""
    calls = [[request["first"] + number] for number in range(request["count"])]
    submit = getattr(system, "submit_each", None) or partial(one_by_one, system)
    began = time.perf_counter()
    taken = submit(request["kind"], calls)
    return {"seconds": time.perf_counter() - began, "taken": [round(each, 7) for each in taken]}


def one_by_one(system: System, kind: str, calls: list[list[int]]) -> list[float]:
    taken = []
    for args in calls:
        began = time.perf_counter()
        system.submit(kind, args)
        taken.append(time.perf_counter() - began)
    return taken


def settle(system: System, request: Request) -> Answer:
    """Wait until the system's own records show everything done, and say when that was."""
    deadline = time.monotonic() + request["timeout"]
    while (left := system.unfinished(request["enqueued"])) > 0:
        if time.monotonic() > deadline:
            return {"error": f"{left} tasks began but were never recorded as done"}
        time.sleep(SETTLE_PAUSE)
    return {"at": time.time()}


ACTIONS: dict[str, Callable[[System, Request], Answer]] = {
    "describe": describe,
    "enqueue": enqueue,
    "pace": pace,
    "submit_each": submit_each,
    "settle": settle,
}


def main() -> None:
    """An exception of the system ends the agent: its last words, in the agent's log, are the reason reported."""
    # Systems print; their words must not land among the answers.
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    system = cast(System, importlib.import_module(f"tests.labs.bench.systems.{sys.argv[1]}"))
    for line in sys.stdin:
        request = json.loads(line)
        print(json.dumps(ACTIONS[request["do"]](system, request)), file=answers)


if __name__ == "__main__":
    main()
