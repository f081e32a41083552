"""Handlers with steps. Each call of a step's function leaves a line in a file of its name."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextvars import copy_context
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

from pydantic import BaseModel, field_validator

from firmq import (
    SignalTimeout,
    StepFailed,
    continue_as_new,
    current_task,
    resumable,
    sleep,
    sleep_until,
    stable_id,
    stable_now,
    stable_random,
    step,
    task,
    wait_for,
    wait_for_async,
)


class Declined(Exception):
    """The card was declined."""


def mark(folder: str, name: str) -> dict[str, Any]:
    """Notes a call; tells how many there were."""
    path = Path(folder, name)
    with path.open("a") as file:
        file.write(f"{current_task().attempt}\n")
    return {"name": name, "calls": len(path.read_text().splitlines())}


async def mark_async(folder: str, name: str) -> dict[str, Any]:
    await asyncio.sleep(0)
    return mark(folder, name)


def calls(folder: Path, name: str) -> int:
    """How often the function of a step was called."""
    path = folder / name
    return len(path.read_text().splitlines()) if path.exists() else 0


def _reached(folder: str, name: str) -> bool:
    """Tells that the handler is behind a step; whether it may continue."""
    Path(folder, f"{name}.done").touch()
    return not Path(folder, f"{name}.hold").exists()


@task("walk", max_retries=5)
def walk(folder: str, names: list[str], fails: int = 0) -> list[Any]:
    """Runs a step for each name, and waits behind it as long as there is a file that holds it."""
    results = []
    for name in names:
        results.append(step(name, mark, folder, name))
        while not _reached(folder, name):
            time.sleep(0.02)
    if current_task().attempt <= fails:
        raise ConnectionError("not yet")
    return results


@task("walk-threads", max_retries=5, threads=True)
def walk_threads(folder: str, names: list[str], fails: int = 0) -> list[Any]:
    """The same in a thread of an executor that runs many."""
    return walk(folder, names, fails)


@task("walk-async", max_retries=5)
async def walk_async(folder: str, names: list[str], fails: int = 0) -> list[Any]:
    """The same in a coroutine."""
    results = []
    for name in names:
        results.append(await step(name, mark_async, folder, name))
        while not _reached(folder, name):
            await asyncio.sleep(0.02)
    if current_task().attempt <= fails:
        raise ConnectionError("not yet")
    return results


def _row(folder: str, row: int, pause: float, fails_at: int) -> None:
    """Notes a row in the file of this attempt; pauses in the first one only, which a test ends from outside."""
    with Path(folder, f"rows-{current_task().attempt}").open("a") as file:
        file.write(f"{row}\n")
    time.sleep(pause if current_task().attempt == 1 else 0)
    if row == fails_at and current_task().attempt == 1:
        raise ConnectionError(f"row {row}")


def rows_of(folder: Path, attempt: int) -> list[int]:
    """The rows of an attempt."""
    path = folder / f"rows-{attempt}"
    return [int(line) for line in path.read_text().splitlines()] if path.exists() else []


@task("rows", max_retries=5)
def rows(folder: str, many: int, every: int, pause: float = 0.0, fails_at: int = -1) -> int:
    """Loops over rows."""
    for row in resumable(range(many), key=int, every=every):
        _row(folder, row, pause, fails_at)
    return step("count", lambda: many)


@task("rows-threads", max_retries=5, threads=True)
def rows_threads(folder: str, many: int, every: int, pause: float = 0.0, fails_at: int = -1) -> int:
    """The same in a thread of an executor that runs many."""
    return rows(folder, many, every, pause, fails_at)


@task("rows-async", max_retries=5)
async def rows_async(folder: str, many: int, every: int, pause: float = 0.0, fails_at: int = -1) -> int:
    """The same in a coroutine, which asks for the rows behind the checkpoint."""
    async for row in resumable(lambda last: range(0 if last is None else last + 1, many), key=int, every=every):
        await asyncio.to_thread(_row, folder, row, pause, fails_at)
    return many


@task("at-once", max_retries=1)
async def at_once(folder: str, names: list[str]) -> list[Any]:
    """Runs its steps at a time, and fails once."""
    results = await asyncio.gather(*(step(name, mark_async, folder, name) for name in names))
    if current_task().attempt == 1:
        raise ConnectionError("not yet")
    return results


@task("values", max_retries=1)
def values() -> list[Any]:
    """Returns values that are the same in each attempt, and fails once."""
    found = [stable_now().isoformat(), stable_random(), stable_id(), step("tuple", lambda: (1, 2))]
    if current_task().attempt == 1:
        raise ConnectionError(str(found))
    return found


@task("values-async", max_retries=1)
async def values_async() -> list[Any]:
    found = [(await stable_now()).isoformat(), await stable_random(), await stable_id()]
    if current_task().attempt == 1:
        raise ConnectionError(str(found))
    return found


@task("tries", max_retries=0)
def tries(folder: str, fails: int, retries: int) -> Any:
    """Has a step that fails so many times."""

    def call() -> Any:
        if (count := mark(folder, "call")["calls"]) <= fails:
            raise ConnectionError(f"call {count}")
        return count

    return step("call", call, retries=retries, retry_delay=0.01)


@task("tries-async", max_retries=0)
async def tries_async(folder: str, fails: int, retries: int) -> Any:
    async def call() -> Any:
        if (count := mark(folder, "call")["calls"]) <= fails:
            raise ConnectionError(f"call {count}")
        return count

    return await step("call", call, retries=retries, retry_delay=0.01)


@task("declined", max_retries=3)
def declined(folder: str, caught: bool) -> Any:
    """Has a step that ends with an error for good."""

    def charge() -> None:
        mark(folder, "charge")
        raise Declined("no funds")

    try:
        step("charge", charge, give_up_on=(Declined,), retries=3)
    except Exception as error:
        if not caught:
            raise
        if current_task().attempt == 1:
            raise ConnectionError("not yet") from None
        return str(error)


def _many(count: int, size: int) -> None:
    for number in range(count):
        step(f"s-{number}", lambda: "x" * size)


def _twice() -> None:
    step("a", int)
    step("a", int)


MISUSES: dict[str, Callable[[], Any]] = {
    "twice": _twice,
    "name": lambda: step("two words", int),
    "large": lambda: step("a", lambda: "x" * 2_000_000),
    "no json": lambda: step("a", object),
    "together": lambda: _many(30, 100_000),
    "many": lambda: _many(1001, 1),
    "retries": lambda: step("a", int, retries=-1),
}


@task("misused", max_retries=3)
def misused(how: str) -> None:
    """Uses steps as they cannot be used."""
    MISUSES[how]()


@task("nap-between", max_retries=0)
def nap_between(folder: str, seconds: float) -> list[Any]:
    """Sleeps between two steps, in its executor for no moment of it."""
    first = step("first", mark, folder, "first")
    try:
        try:
            sleep(timedelta(seconds=seconds), "pause")
        except Exception:
            mark(folder, "swallowed")
    finally:
        mark(folder, "finally")
    return [first, step("second", mark, folder, "second"), current_task().attempt, current_task().failures]


@task("nap-between-threads", max_retries=0, threads=True)
def nap_between_threads(folder: str, seconds: float) -> list[Any]:
    return nap_between(folder, seconds)


@task("nap-between-async", max_retries=0)
async def nap_between_async(folder: str, seconds: float) -> list[Any]:
    """The same in a coroutine."""
    first = await step("first", mark_async, folder, "first")
    try:
        try:
            await sleep(seconds, "pause")
        except Exception:
            mark(folder, "swallowed")
    finally:
        mark(folder, "finally")
    second = await step("second", mark_async, folder, "second")
    return [first, second, current_task().attempt, current_task().failures]


@task("nap-in-group")
async def nap_in_group() -> str:
    """Sleeps twice at a time."""
    async with asyncio.TaskGroup() as group:
        group.create_task(_nap(30, "short"))
        group.create_task(_nap(60, "long"))
    return "awake"


async def _nap(seconds: float, name: str) -> None:
    await sleep(seconds, name)


@task("nap-wrong", max_retries=0)
def nap_wrong(how: str) -> None:
    """Sleeps as a task cannot."""
    if how == "naive":
        sleep_until(datetime(2030, 1, 1))  # noqa: DTZ001  # it is refused
    elif how == "negative":
        sleep(-1)
    elif how == "long":
        sleep(timedelta(days=400))
    elif how == "past":
        sleep_until(datetime(2020, 1, 1, tzinfo=UTC))


@task("fails-then-naps", max_retries=1)
def fails_then_naps(folder: str) -> list[int]:
    """Fails before and after a nap: both failures count."""
    if mark(folder, "begin")["calls"] == 1:
        raise ConnectionError("before")
    sleep(0.1)
    if mark(folder, "end")["calls"] == 1:
        raise ConnectionError("after")
    return [current_task().attempt, current_task().failures]


@task("approve", max_retries=0)
def approve(folder: str, within: float | None = None) -> list[Any]:
    """Waits for an approval between two steps."""
    step("ask", mark, folder, "ask")
    try:
        answer = wait_for("approval", within)
    except SignalTimeout:
        answer = "too late"
    step("tell", mark, folder, "tell")
    return [answer, current_task().attempt, current_task().failures]


@task("approve-threads", max_retries=0, threads=True)
def approve_threads(folder: str, within: float | None = None) -> list[Any]:
    return approve(folder, within)


@task("approve-async", max_retries=0)
async def approve_async(folder: str, within: float | None = None) -> list[Any]:
    """The same in a coroutine."""
    await step("ask", mark_async, folder, "ask")
    try:
        answer = await wait_for("approval", within)
    except SignalTimeout:
        answer = "too late"
    await step("tell", mark_async, folder, "tell")
    return [answer, current_task().attempt, current_task().failures]


class Approval(BaseModel):
    """Who has approved, and until when."""

    approved: bool
    until: date | None = None

    @field_validator("until")
    @classmethod
    def not_in_the_past(cls, until: date | None) -> date | None:
        """Checks what no schema says."""
        if until is not None and until < date(2000, 1, 1):
            raise ValueError("is over")
        return until


@task("approve-typed", max_retries=0)
def approve_typed(folder: str, fails: bool = False) -> list[Any]:
    """Waits for an approval, and can fail behind it in its first attempts."""
    step("ask", mark, folder, "ask")
    answer = wait_for("approval", Approval)
    if fails and not answer.approved:
        raise ValueError("not approved")
    return [answer.approved, answer.until, current_task().attempt]


@task("approve-typed-async", max_retries=0)
async def approve_typed_async(folder: str, fails: bool = False) -> list[Any]:
    """The same in a coroutine."""
    await step("ask", mark_async, folder, "ask")
    answer = await wait_for_async("approval", Approval)
    if fails and not answer.approved:
        raise ValueError("not approved")
    return [answer.approved, answer.until, current_task().attempt]


@task("approved-or-dead")
def approved_or_dead() -> Any:
    """Handles no time-out."""
    return wait_for("approval", 0.5)


@task("long-flow", max_retries=0)
def long_flow(folder: str) -> list[Any]:
    """Ten steps, three sleeps and two signals."""
    results: list[Any] = []
    for number in range(10):
        results.append(step(f"step-{number}", mark, folder, f"step-{number}")["name"])
        if number in (1, 4, 7):
            sleep(0.2, f"sleep-{number}")
        elif number in (3, 8):
            results.append(wait_for(f"signal-{number}"))
    return results


@task("long-flow-async", max_retries=0)
async def long_flow_async(folder: str) -> list[Any]:
    """The same in a coroutine."""
    results: list[Any] = []
    for number in range(10):
        results.append((await step(f"step-{number}", mark_async, folder, f"step-{number}"))["name"])
        if number in (1, 4, 7):
            await sleep(0.2, f"sleep-{number}")
        elif number in (3, 8):
            results.append(await wait_for(f"signal-{number}"))
    return results


@task("changing")
def changing(folder: str, versions: list[list[str]]) -> list[str]:
    """Runs other steps in each attempt, as if its code had changed; fails at the end of all but the last."""
    attempt = current_task().attempt
    for name in versions[attempt - 1]:
        step(name.removeprefix("+"), mark, folder, name.removeprefix("+"), out_of_order=name.startswith("+"))
    if attempt < len(versions):
        raise ConnectionError("not yet")
    return versions[-1]


@task("changing-async")
async def changing_async(folder: str, versions: list[list[str]]) -> list[str]:
    """The same in a coroutine; names that are joined by & are steps of one `gather`."""
    attempt = current_task().attempt
    for names in versions[attempt - 1]:
        steps = [
            step(name.removeprefix("+"), mark_async, folder, name, out_of_order=name.startswith("+"))
            for name in names.split("&")
        ]
        if len(steps) == 1:
            await steps[0]
        else:
            await asyncio.gather(*steps)
    if attempt < len(versions):
        raise ConnectionError("not yet")
    return versions[-1]


@task("falling-back")
def falling_back(folder: str) -> str:
    """Has a step whose first error it catches, a loop with steps, and a step in a thread of its own."""
    from threading import Thread

    def first() -> None:
        if current_task().attempt == 1:
            raise ConnectionError("away")

    try:
        step("first", first)
    except ConnectionError:
        step("instead", mark, folder, "instead")
    if current_task().attempt == 1:
        thread = Thread(target=copy_context().run, args=(step, "beside", mark, folder, "beside"))
        thread.start()
        thread.join()
    for number in resumable(range(1, 4), key=lambda each: each, every=1):
        step(f"item-{number}", mark, folder, f"item-{number}")
        if current_task().attempt == 1 and number == 2:
            raise ConnectionError("not yet")
    step("last", mark, folder, "last")
    return "done"


@task("pinned", pin_version=True)
def pinned(folder: str) -> None:
    """Sleeps twice."""
    for number in range(2):
        step(f"step-{number}", mark, folder, f"step-{number}")
        sleep(0.2, f"sleep-{number}")


@task("pinned-async", pin_version=True)
async def pinned_async(folder: str) -> None:
    """The same in a coroutine."""
    for number in range(2):
        await step(f"step-{number}", mark_async, folder, f"step-{number}")
        await sleep(0.2, f"sleep-{number}")


@task("rounds")
def rounds(folder: str, last: int, number: int = 1, waits: bool = False) -> dict[str, Any]:
    """Goes on as a new task until its last round."""
    found = step("work", mark, folder, f"round-{number}")
    said = wait_for(f"go-{number}") if waits else None
    if number < last:
        continue_as_new({"folder": folder, "last": last, "number": number + 1, "waits": waits})
    return {"number": number, "calls": found["calls"], "said": said}


@task("rounds-async")
async def rounds_async(folder: str, last: int, number: int = 1, waits: bool = False) -> dict[str, Any]:
    """The same in a coroutine."""
    found = await step("work", mark_async, folder, f"round-{number}")
    said = await wait_for(f"go-{number}") if waits else None
    if number < last:
        await continue_as_new({"folder": folder, "last": last, "number": number + 1, "waits": waits})
    return {"number": number, "calls": found["calls"], "said": said}


@task("wrong-round")
def wrong_round() -> None:
    """Goes on with data that it does not take."""
    continue_as_new({"number": "one"})


@task("compensating")
def compensating(folder: str) -> str:
    """Undoes what it did when a step fails permanently, and is a dead letter then."""
    step("reserve", mark, folder, "reserve")

    def charge() -> None:
        if not Path(folder, "paid").exists():
            raise Declined("no")

    try:
        step("charge", charge, give_up_on=[Declined])
    except StepFailed:
        step("release", mark, folder, "release")
        raise
    step("ship", mark, folder, "ship")
    return "shipped"
