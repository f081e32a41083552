"""Handlers that start others and wait for them."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from firmq import (
    ChildFailed,
    current_task,
    gather,
    new_task,
    sleep,
    sleep_until,
    start_children,
    step,
    task,
    wait_for,
)
from tests.features.durable.handlers import mark


@task("child", max_retries=0)
def child(folder: str, number: int, fails: bool = False) -> int:
    """Notes its call, waits behind a file that holds it, and returns ten times its number."""
    mark(folder, f"child-{number}")
    while Path(folder, f"child-{number}.hold").exists():
        time.sleep(0.02)
    if fails and not Path(folder, "mended").exists():
        raise ValueError(f"child {number} fails")
    return number * 10


def _tasks(folder: str, numbers: list[int], failing: list[int]) -> list[dict[str, Any]]:
    return [new_task("child", {"folder": folder, "number": each, "fails": each in failing}) for each in numbers]


def _plain(found: list[Any]) -> list[Any]:
    return [f"{each.state}: {each.error}" if isinstance(each, ChildFailed) else each for each in found]


@task("family", max_retries=0)
def family(folder: str, many: int, failing: list[int] | None = None, catches: bool = False) -> list[Any]:
    """Starts children between two steps, and returns their results and its attempts."""
    step("before", mark, folder, "before")
    children = start_children("pages", _tasks(folder, list(range(many)), failing or []))
    results = gather(children, return_exceptions=catches)
    step("after", mark, folder, "after")
    return [*_plain(results), current_task().attempt]


@task("family-threads", max_retries=0, threads=True)
def family_threads(folder: str, many: int, failing: list[int] | None = None, catches: bool = False) -> list[Any]:
    """The same in a thread of an executor that runs many."""
    return family(folder, many, failing, catches)


@task("family-async", max_retries=0)
async def family_async(folder: str, many: int, failing: list[int] | None = None, catches: bool = False) -> list[Any]:
    """The same in a coroutine."""
    children = await start_children("pages", _tasks(folder, list(range(many)), failing or []))
    results = await gather(children, return_exceptions=catches)
    return [*_plain(results), current_task().attempt]


@task("full-flow", max_retries=0)
def full_flow(folder: str) -> list[Any]:
    """Ten steps, three sleeps, two signals and five children."""
    results: list[Any] = []
    for number in range(10):
        results.append(step(f"step-{number}", mark, folder, f"step-{number}")["name"])
        if number in (1, 4, 7):
            sleep(0.05, f"sleep-{number}")
        elif number in (3, 8):
            results.append(wait_for(f"signal-{number}"))
        elif number == 5:
            results += gather(start_children("children", _tasks(folder, list(range(5)), [])))
    return results


@task("pause", max_retries=0)
def pause(seconds: float | None) -> float:
    """Sleeps until a moment, or waits for a signal. Returns when it went on."""
    if seconds is None:
        wait_for("go")
    else:
        sleep_until(datetime.fromtimestamp(seconds, UTC))
    return time.time()


@task("two-groups", max_retries=0)
def two_groups(folder: str) -> list[Any]:
    """Waits for a quick group while a slow one runs, and then for that."""
    slow = start_children("slow", _tasks(folder, [1], []))
    quick = start_children("quick", _tasks(folder, [2, 3], []))
    first = gather(quick)
    step("between", mark, folder, "between")
    return [first, gather(slow)]


@task("starts-and-fails", max_retries=3)
def starts_and_fails(folder: str) -> list[Any]:
    """Starts children, and dies before it waits for them in its first attempt."""
    children = start_children("pages", _tasks(folder, [1, 2], []))
    if current_task().attempt == 1:
        raise ConnectionError("not yet")
    return [*gather(children)]


@task("misused-children", max_retries=0)
def misused_children(how: str) -> Any:
    """Starts children as they cannot be started."""
    if how == "none":
        return gather(start_children("pages", []))
    bodies: dict[str, list[dict[str, Any]]] = {
        "many": [new_task("child", {"folder": "", "number": 1})] * 1001,
        "unique": [new_task("child", {"folder": "", "number": 1}, unique_key="x")],
        "invalid": [new_task("child", {"folder": "", "number": "no"})],
    }
    return len(start_children("pages", bodies[how]))
