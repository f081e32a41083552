"""Hooks: functions of the user that run around each attempt, and when executors and workers start and stop.

Hooks run in the order of their registration; those that end something (`after_task`, `executor_stopping`,
`worker_stopping`) in the opposite order, so that the first resource opened is the last one closed.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from contextvars import Context, copy_context
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, TypeVar

from firmq.shared.domain.task import Outcome, TaskState
from firmq.worker.handlers.context import CurrentTask
from firmq.worker.handlers.errors import decisive, describe, is_a, traceback_of
from firmq.worker.handlers.registry import HandlerError
from firmq.worker.handlers.signals import GiveUp, RetryLater, TaskCancelled, TimeLimitExceeded

log = logging.getLogger(__name__)

ENDS_ATTEMPT = (GiveUp, RetryLater, TimeLimitExceeded, TaskCancelled)
"""Errors that a `before_task` hook may raise to end the attempt; others are logged."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptOutcome:
    """How an attempt ended, for `after_task` and `on_failure` hooks.

    `outcome` is "completed", "failed", "timed_out" or "cancelled"; or "interrupted", when it runs again at no cost.
    `state` is the task's new state, "failed" for a dead letter. `error` is the exception that ended the handler;
    `cause` is the one that decided: the same, or one of the errors of an exception group.
    """

    outcome: Outcome
    state: TaskState
    error: BaseException | None = None
    retry_delay: timedelta | None = None
    cause: BaseException | None = None

    @classmethod
    def after(
        cls, error: BaseException, outcome: Outcome, state: TaskState, delay_us: int, cause: BaseException
    ) -> AttemptOutcome:
        """Returns the outcome of an attempt that ended with an error."""
        delay = timedelta(microseconds=delay_us) if state is TaskState.RETRYING else None
        return cls(outcome=outcome, state=state, error=error, retry_delay=delay, cause=cause)

    @property
    def failed(self) -> bool:
        """Returns whether the attempt failed or reached its time limit."""
        return self.outcome in (Outcome.FAILED, Outcome.TIMED_OUT)

    @property
    def will_retry(self) -> bool:
        """Returns whether the task is retried; a failed attempt that is not makes it a dead letter."""
        return self.state is TaskState.RETRYING


COMPLETED = AttemptOutcome(outcome=Outcome.COMPLETED, state=TaskState.COMPLETED)
INTERRUPTED = AttemptOutcome(outcome=Outcome.INTERRUPTED, state=TaskState.PENDING)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutorContext:
    """An executor, for its hooks: a process of kind "serial" or "concurrent", which runs `slots` tasks at a time."""

    worker: str
    kind: str
    slots: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerContext:
    """A worker, for its hooks."""

    name: str
    queues: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Hook:
    """A registered function."""

    kind: str
    function: Callable[..., Any]
    is_async: bool

    def __str__(self) -> str:
        return f"{self.kind} hook {self.function.__module__}.{self.function.__qualname__}"

    @contextmanager
    def guarded(self, passing: tuple[type[BaseException], ...] = ()) -> Iterator[None]:
        """Logs errors of the hook in this block instead of raising them, except errors of the classes `passing`."""
        try:
            yield
        except BaseException as error:  # a hook that ends with SystemExit must not end the executor
            if is_a(decisive(error), passing):
                raise
            exc_info = (type(error), error, traceback_of(error))
            log.error("%s failed: %s", self, describe(error), exc_info=exc_info)


@dataclass(frozen=True, slots=True)
class Hooks:
    """All registered hooks, each list in the order in which it runs."""

    before_task: list[Hook] = field(default_factory=list)
    after_task: list[Hook] = field(default_factory=list)
    on_failure: list[Hook] = field(default_factory=list)
    executor_started: list[Hook] = field(default_factory=list)
    executor_stopping: list[Hook] = field(default_factory=list)
    worker_started: list[Hook] = field(default_factory=list)
    worker_stopping: list[Hook] = field(default_factory=list)

    @property
    def of_tasks(self) -> bool:
        """Returns whether any hook runs around attempts."""
        return bool(self.before_task or self.after_task or self.on_failure)

    def add(self, kind: str, function: Callable[..., Any], *parameters: str, last_first: bool = False) -> None:
        """Adds a hook. Raises HandlerError when it cannot be called with these parameters."""
        hook = Hook(kind, function, inspect.iscoroutinefunction(function))
        try:
            inspect.signature(function).bind(*parameters)
        except TypeError as error:
            raise HandlerError(f"{hook} must accept ({', '.join(parameters)}): {error}") from error
        hooks: list[Hook] = getattr(self, kind)
        if all(known.function is not function for known in hooks):
            hooks.insert(0 if last_first else len(hooks), hook)

    def at_end(self, outcome: AttemptOutcome) -> list[Hook]:
        """Returns the hooks that run after an attempt with this outcome."""
        return [*self.on_failure, *self.after_task] if outcome.failed else self.after_task


HOOKS = Hooks()
"""The hooks of the decorators: as with handlers, the only place that a decorator can reach."""

TaskHook = TypeVar("TaskHook", bound=Callable[[CurrentTask], object])
OutcomeHook = TypeVar("OutcomeHook", bound=Callable[[CurrentTask, AttemptOutcome], object])
ExecutorHook = TypeVar("ExecutorHook", bound=Callable[[ExecutorContext], object])
WorkerHook = TypeVar("WorkerHook", bound=Callable[[WorkerContext], object])


def before_task(function: TaskHook) -> TaskHook:
    """Registers a function that runs before the handler in each attempt, with the task.

    Raises HandlerError at import time when it cannot be called so; so do the other decorators.
    """
    HOOKS.add("before_task", function, "task")
    return function


def after_task(function: OutcomeHook) -> OutcomeHook:
    """Registers a function that runs after each attempt, with the task and its outcome; last registered first."""
    HOOKS.add("after_task", function, "task", "outcome", last_first=True)
    return function


def on_failure(function: OutcomeHook) -> OutcomeHook:
    """Registers a function that runs after each failed attempt and before the `after_task` hooks."""
    HOOKS.add("on_failure", function, "task", "outcome")
    return function


def executor_started(function: ExecutorHook) -> ExecutorHook:
    """Registers a function that runs in each executor before its first task; if it fails, the executor takes none."""
    HOOKS.add("executor_started", function, "executor")
    return function


def executor_stopping(function: ExecutorHook) -> ExecutorHook:
    """Registers a function that runs in an executor after its last task (clean shutdown); last registered first."""
    HOOKS.add("executor_stopping", function, "executor", last_first=True)
    return function


def worker_started(function: WorkerHook) -> WorkerHook:
    """Registers a function that runs in a worker's main process before it claims tasks.

    Its module must be in WORKER_HOOK_MODULES. If it fails, the worker does not start.
    """
    HOOKS.add("worker_started", function, "worker")
    return function


def worker_stopping(function: WorkerHook) -> WorkerHook:
    """Registers a function that runs in a worker's main process after its last task; last registered first."""
    HOOKS.add("worker_stopping", function, "worker", last_first=True)
    return function


Call = Callable[..., object]
"""Calls a hook with its arguments."""


def run_before(task: CurrentTask, call: Call) -> None:
    """Runs the `before_task` hooks. Raises only errors that end the attempt."""
    for hook in HOOKS.before_task:
        with hook.guarded(ENDS_ATTEMPT):
            call(hook, task)


def run_after(task: CurrentTask, outcome: AttemptOutcome, call: Call) -> None:
    """Runs the hooks that follow an attempt."""
    for hook in HOOKS.at_end(outcome):
        with hook.guarded():
            call(hook, task, outcome)


async def with_context(coroutine: Coroutine[Any, Any, object]) -> Context:
    """Awaits a coroutine, and returns the context variables as it left them."""
    await coroutine
    return copy_context()


def adopt(context: Context) -> None:
    """Sets the context variables that differ in another context to their values there."""
    for variable, value in context.items():
        if variable.get(None) is not value:
            variable.set(value)
