"""Hooks around handlers of each kind; a task type names what its hooks do wrong, such as `plain.before.raise`."""

from __future__ import annotations

import asyncio
import concurrent.futures
import logging
import os
import threading
import time
from contextlib import suppress
from contextvars import ContextVar

from opentelemetry import trace

from firmq import (
    AttemptOutcome,
    CurrentTask,
    ExecutorContext,
    GiveUp,
    RetryLater,
    TimeLimitExceeded,
    after_task,
    before_task,
    current_task,
    executor_started,
    executor_stopping,
    on_failure,
    task,
)

log = logging.getLogger(__name__)
KINDS = ("plain", "thread", "coroutine")
ENDS: dict[str, type[BaseException]] = {
    "stop": StopIteration,
    "stop-async": StopAsyncIteration,
    "generator-exit": GeneratorExit,
    "keyboard": KeyboardInterrupt,
    "cancelled": asyncio.CancelledError,
    "future": concurrent.futures.CancelledError,
}
"""Errors that a future, a coroutine or a program takes for something else."""
RAISED: dict[str, BaseException | type[BaseException]] = {
    **ENDS,
    "raise": ValueError("no connection"),
    "exit": SystemExit(3),
    "give-up": GiveUp("not today"),
}
trail: ContextVar[tuple[str, ...]] = ContextVar("trail", default=())
thread: ContextVar[int] = ContextVar("thread", default=0)


def _go(word: str) -> None:
    trail.set((*trail.get(), word))


def _note(line: str) -> None:
    """Writes to a file that a test reads, if there is one."""
    if path := os.environ.get("TEST_HOOKS_FILE"):
        with open(path, "a") as file:
            file.write(f"{line}\n")


_two = threading.Barrier(2)


def _misbehave(stage: str, of: CurrentTask) -> None:
    wrong = of.type.rpartition(f".{stage}.")[2]
    if wrong == "crash":
        os._exit(4)
    if wrong == "hang":
        time.sleep(3600)
    if wrong in RAISED:
        raise RAISED[wrong]
    if wrong == "later" and of.attempt == 1:
        raise RetryLater(0)
    if wrong == "meet":
        _two.wait(60)
        log.info("two hooks met")


async def _misbehave_in_coroutine(stage: str, of: CurrentTask) -> None:
    wrong = of.type.rpartition(f".{stage}.")[2]
    if wrong == "hang-in-coroutine":
        await asyncio.sleep(3600)
    if wrong == "deaf":
        while True:
            with suppress(asyncio.CancelledError, TimeLimitExceeded):
                await asyncio.sleep(3600)
    if wrong == "cancel":
        raise asyncio.CancelledError
    if wrong == "block":
        time.sleep(3600)  # noqa: ASYNC251  # the point of it


@before_task
def first(of: CurrentTask) -> None:
    with trace.get_tracer("hooks").start_as_current_span("first hook"):
        _go("first")
    thread.set(threading.get_ident())
    log.info("first hook of %s", current_task().id)
    _misbehave("before", of)


@before_task
async def second(of: CurrentTask) -> None:
    await asyncio.sleep(0)
    _go("second")
    await _misbehave_in_coroutine("before", of)


@after_task
async def last(of: CurrentTask, outcome: AttemptOutcome) -> None:
    await asyncio.sleep(0)
    log.info("last hook after %s of %s", ", ".join(trail.get()), outcome.outcome)
    await _misbehave_in_coroutine("after", of)


@after_task
def last_but_one(of: CurrentTask, outcome: AttemptOutcome) -> None:
    _go("last but one")
    if of.type == "thread":
        _go(f"same thread: {thread.get() == threading.get_ident()}")
    _misbehave("after", of)


@on_failure
def report(of: CurrentTask, outcome: AttemptOutcome) -> None:
    _go("report")
    delay = outcome.retry_delay.total_seconds() if outcome.retry_delay else None
    log.info("report %s %s %s", type(outcome.error).__name__, outcome.will_retry, delay)


@executor_started
async def open_pool(executor: ExecutorContext) -> None:
    _note(f"open {executor.kind} {os.getpid()}")
    wrong = os.environ.get("TEST_HOOKS_WRONG", "")
    if wrong == "raise":
        raise ConnectionError("no database")
    if wrong == "hang":
        await asyncio.sleep(3600)
    if wrong == "crash":
        os._exit(5)


@executor_stopping
def close_first(executor: ExecutorContext) -> None:
    _note(f"close first {executor.kind} {os.getpid()}")


@executor_stopping
async def raises_at_the_end(executor: ExecutorContext) -> None:
    raise ValueError("no matter")


def _handle(fail: str = "", seconds: float = 0) -> list[str]:
    _note(f"run {os.getpid()}")
    _go("handler")
    if seconds:
        time.sleep(seconds)
    if fail:
        raise ENDS[fail] if fail in ENDS else RuntimeError(fail)
    if thread.get() and current_task().type == "thread":
        _go(f"same thread: {thread.get() == threading.get_ident()}")
    return list(trail.get())


async def _handle_in_coroutine(fail: str = "", seconds: float = 0) -> list[str]:
    await asyncio.sleep(seconds)
    return _handle(fail)


def _register() -> None:
    wrongs = (
        "raise",
        "exit",
        "crash",
        "hang",
        "give-up",
        "later",
        "meet",
        "hang-in-coroutine",
        "deaf",
        "cancel",
        "block",
        *ENDS,
    )
    for end in ("", *(f".{stage}.{wrong}" for stage in ("before", "after") for wrong in wrongs)):
        for kind in KINDS:
            function = _handle_in_coroutine if kind == "coroutine" else _handle
            task(f"{kind}{end}", threads=kind == "thread")(function)


_register()
