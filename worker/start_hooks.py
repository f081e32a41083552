"""Runs the hooks of executors and workers that start and stop."""

from __future__ import annotations

import faulthandler
import logging
import signal
from collections.abc import Callable, Coroutine, Iterable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, NoReturn

from firmq.shared.errors import FirmqError
from firmq.worker.handlers.errors import describe
from firmq.worker.handlers.hooks import Hook
from firmq.worker.handlers.registry import HandlerError, import_project_module

log = logging.getLogger(__name__)

_PATIENCE = 1.0
"""Seconds after its limit in which a hook may react; then its process is ended, as it is stuck in C code."""

RunCoroutine = Callable[[Coroutine[Any, Any, object]], object]


class HookFailed(FirmqError):
    """A hook failed without which the process must not run tasks."""


def load(modules: Iterable[str]) -> None:
    """Imports the modules that hold hooks of workers. Raises HandlerError."""
    for module in modules:
        try:
            import_project_module(module)
        except Exception as error:
            raise HandlerError(f"WORKER_HOOK_MODULES: {error}") from error


def run_started(hooks: Iterable[Hook], about: object, run: RunCoroutine, seconds: float) -> None:
    """Runs hooks within so many seconds in all. Raises HookFailed at the first that fails.

    A hook that ignores the limit ends the process, after the stack is written to standard error.
    """
    with _time_limit(seconds):
        for hook in hooks:
            try:
                _call(hook, about, run)
            except BaseException as error:
                log.error("%s failed", hook, exc_info=error)
                raise HookFailed(f"{hook} failed: {describe(error)}") from error


def run_stopping(hooks: Iterable[Hook], about: object, run: RunCoroutine, seconds: float) -> None:
    """Runs hooks within so many seconds each; errors are logged."""
    for hook in hooks:
        with hook.guarded(), _time_limit(seconds):
            _call(hook, about, run)


def _call(hook: Hook, about: object, run: RunCoroutine) -> None:
    value = hook.function(about)
    if hook.is_async:
        run(value)


@contextmanager
def _time_limit(seconds: float) -> Iterator[None]:
    """Raises TimeoutError in this block after so many seconds; for the main thread."""

    def stop(signum: int, frame: FrameType | None) -> NoReturn:
        raise TimeoutError(f"it took longer than {seconds:g} s (HOOK_TIMEOUT)")

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    faulthandler.dump_traceback_later(seconds + _PATIENCE, exit=True)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        faulthandler.cancel_dump_traceback_later()
        signal.signal(signal.SIGALRM, before)
