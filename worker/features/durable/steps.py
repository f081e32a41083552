"""`step` stores the result of a call with its task, which does not repeat the call when it runs again."""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Awaitable, Callable, Iterable
from contextvars import copy_context
from datetime import UTC, datetime
from functools import cache, partial
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar, overload

from firmq.shared.domain.failure_fingerprint import class_name
from firmq.shared.domain.step import SIGNAL, Step, StepKind
from firmq.shared.domain.task import new_task_id
from firmq.worker.features.durable.replay import ON_STACK, open_replay
from firmq.worker.handlers import errors
from firmq.worker.handlers.context import current, current_task
from firmq.worker.handlers.errors import is_a
from firmq.worker.handlers.signals import GiveUp, RetryLater, StepFailed

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

    from firmq.worker.features.durable.replay import Replay

log = logging.getLogger(__name__)

R = TypeVar("R")
T = TypeVar("T")
THREADS = "task thread for steps"
"""The names of threads that store the steps of coroutines."""
_FINAL = (GiveUp, RetryLater, StepFailed)
_LONGEST_PAUSE = 60.0
_LONGEST_MESSAGE = 1000


@overload
def step(
    name: str,
    function: Callable[..., Awaitable[R]],
    /,
    *args: Any,
    retries: int = 0,
    retry_delay: float = 1.0,
    give_up_on: Iterable[type[Exception]] = (),
    out_of_order: bool = False,
    **kwargs: Any,
) -> Awaitable[R]: ...


@overload
def step(
    name: str,
    function: Callable[..., R],
    /,
    *args: Any,
    retries: int = 0,
    retry_delay: float = 1.0,
    give_up_on: Iterable[type[Exception]] = (),
    out_of_order: bool = False,
    **kwargs: Any,
) -> R: ...


def step(
    name: str,
    function: Callable[..., Any],
    /,
    *args: Any,
    retries: int = 0,
    retry_delay: float = 1.0,
    give_up_on: Iterable[type[Exception]] = (),
    out_of_order: bool = False,
    **kwargs: Any,
) -> Any:
    """Calls a function once for its task: the result is stored, and returned without a call when the task runs again.

    In an `async def` handler the step is awaited, and the function is a coroutine function. The result must be
    serializable as JSON, and the step returns what was stored: a tuple is returned as a list. `name` is unique within
    the task. A function that fails is called again up to `retries` times, `retry_delay` seconds later and twice as long
    each time; then its error is raised, and the next attempt of the task calls the function again. An error of a type
    in `give_up_on` is stored instead of a result: this and every later attempt raises StepFailed.

    A new step that the handler calls before a stored one raises WorkflowChanged: the code has changed under the task.
    With `out_of_order` it runs: for a step that was added to a handler whose tasks have begun.

    If the process dies after the call and before the result is stored, the next attempt calls the function again.
    Outside of a task the function is only called.

    Raises StepFailed, DuplicateStep, WorkflowChanged, TooManySteps, ResultTooLarge, ResultNotSerializable, and
    ValueError for a name or a number that cannot be used.
    """
    if name.startswith(SIGNAL):
        raise ValueError(f"the name of a step cannot begin with {SIGNAL!r}, as waits for signals do: {name[:100]!r}")
    if type(retries) is not int or not retries >= 0 or type(retry_delay) not in (int, float) or not retry_delay >= 0:
        raise ValueError(f"step {name!r}: retries and retry_delay must be at least 0, got {retries} and {retry_delay}")
    replay = replay_of_current_task()
    call = _Call(
        name, partial(function, *args, **kwargs), retries, retry_delay, errors.classes_of(give_up_on), out_of_order
    )
    if awaited(replay):
        return call.run_async(replay)
    return call.run(replay)


def stable_now(name: str = "now") -> Any:
    """Returns the time at the first call, in UTC, also when the task runs again; awaited in an `async def` handler."""
    return _stable(name, lambda: datetime.now(UTC).isoformat(), datetime.fromisoformat)


def stable_random(name: str = "random") -> Any:
    """Returns a random number from 0 to 1, the same when the task runs again; awaited in an `async def` handler."""
    return _stable(name, random.random, float)


def stable_id(name: str = "id") -> Any:
    """Returns a new id (a ULID), the same when the task runs again; awaited in an `async def` handler.

    Use it as the idempotency key of a call to another system.
    """
    return _stable(name, new_task_id, str)


def _stable(name: str, make: Callable[[], Any], read: Callable[[Any], T]) -> Any:
    value = step(name, make)
    if not isinstance(value, Awaitable):
        return read(value)

    async def wait() -> T:
        return read(await value)

    return wait()


def replay_of_current_task() -> Replay | None:
    """Returns the steps of the running task; None outside of one. Raises RuntimeError when the attempt has ended."""
    if current.get() is None:
        return None
    task = current_task()
    if task.recorder is None or task.step_context is None:
        return None
    if task.recorder.replay is None:
        task.recorder.replay = open_replay(task.step_context(task.recorder))
    found: Replay = task.recorder.replay
    return found


def awaited(replay: Replay | None) -> bool:
    """Returns whether the caller is a coroutine, which has to await a step. A function in a thread does not."""
    if replay is not None and not replay.is_async:
        return False
    from asyncio import get_running_loop  # imported already where coroutines run; plain functions do not need it

    try:
        get_running_loop()
    except RuntimeError:
        return False
    return True


async def in_thread(function: Callable[..., T], *args: Any) -> T:
    """Calls a function that waits for Redis, beside the event loop."""
    from asyncio import get_running_loop

    replay, context = replay_of_current_task(), copy_context()
    if replay is not None:
        context.run(ON_STACK.set, replay.is_called_by_handler())
    return await get_running_loop().run_in_executor(_threads(), context.run, partial(function, *args))


@cache
def _threads() -> ThreadPoolExecutor:
    from concurrent.futures import ThreadPoolExecutor

    return ThreadPoolExecutor(4, THREADS)


class _Call:
    """One step: its function, and when that is called again."""

    def __init__(
        self,
        name: str,
        function: Callable[[], Any],
        retries: int,
        retry_delay: float,
        give_up_on: tuple[type[BaseException], ...],
        out_of_order: bool,
    ) -> None:
        self.name = name
        self.function = function
        self.retries = retries
        self.retry_delay = retry_delay
        self.give_up_on = give_up_on
        self.caught: tuple[type[BaseException], ...] = (Exception, *give_up_on)
        self.out_of_order = out_of_order
        self.tries = 1

    def run(self, replay: Replay | None) -> Any:
        if replay is None:
            return self.function()
        if stored := replay.begin(self.name, out_of_order=self.out_of_order):
            return _value(stored)
        started_us = replay.now_us()
        while True:
            try:
                value = self.function()
            except self.caught as error:
                if is_a(self._cause(error), self.give_up_on):
                    _fail(self._save_error(replay, error, started_us))
                pause = self._pause(replay, error)
                if pause is None:
                    raise
                time.sleep(pause)
            else:
                return _value(replay.save(self.name, StepKind.RESULT, value, started_us, self.tries))

    async def run_async(self, replay: Replay | None) -> Any:
        if replay is None:
            return await _result(self.function())
        if stored := await in_thread(partial(replay.begin, self.name, out_of_order=self.out_of_order)):
            return _value(stored)
        from asyncio import sleep

        started_us = replay.now_us()
        while True:
            try:
                value = await _result(self.function())
            except self.caught as error:
                if is_a(self._cause(error), self.give_up_on):
                    _fail(await in_thread(self._save_error, replay, error, started_us))
                pause = self._pause(replay, error)
                if pause is None:
                    raise
                await sleep(pause)
            else:
                save = replay.save
                return _value(await in_thread(save, self.name, StepKind.RESULT, value, started_us, self.tries))

    def _cause(self, error: BaseException) -> BaseException:
        """Returns the error of a group that decides, or the error itself."""
        final = (*_FINAL, *self.give_up_on)
        return errors.decisive(error, lambda each: errors.FINAL if is_a(each, final) else errors.OTHER)

    def _save_error(self, replay: Replay, error: BaseException, started_us: int) -> Step:
        about = {"type": class_name(self._cause(error)), "message": errors.message(error)[:_LONGEST_MESSAGE]}
        return replay.save(self.name, StepKind.ERROR, about, started_us, self.tries)

    def _pause(self, replay: Replay, error: BaseException) -> float | None:
        """Returns the seconds until the next call; None after the last one."""
        if self.tries > self.retries or is_a(self._cause(error), _FINAL):
            replay.has_failed = True
            return None
        pause = min(_LONGEST_PAUSE, self.retry_delay * 2 ** (self.tries - 1))
        log.warning("step %s failed, calling it again in %g s: %s", self.name, pause, errors.describe(error))
        self.tries += 1
        return float(pause)


async def _result(value: Any) -> Any:
    return await value if isinstance(value, Awaitable) else value


def _value(stored: Step) -> Any:
    """Returns the result of a stored step. Raises StepFailed for one that has ended with an error."""
    if stored.kind is StepKind.ERROR:
        _fail(stored)
    return stored.value


def _fail(stored: Step) -> NoReturn:
    raise StepFailed(stored.name, stored.value["type"], stored.value["message"]) from None
