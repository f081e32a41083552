"""`firmq run TYPE`: runs a handler once in this process, without Redis, where a debugger can be used."""

from __future__ import annotations

import bdb
import contextlib
import functools
import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from firmq.shared.config.settings import Settings, load_or_exit
from firmq.shared.domain import sanitize
from firmq.shared.domain.task import TaskState
from firmq.shared.observability import logs
from firmq.shared.submission.answers import TaskDetail
from firmq.shared.submission.problems import Refused
from firmq.worker.executors.outcomes import Outcomes
from firmq.worker.handlers import registry
from firmq.worker.handlers.errors import is_a, leaves
from firmq.worker.handlers.registry import Handler, HandlerError
from firmq.worker.local import attempts
from firmq.worker.local.client import LocalClient

COMPLETED, FAILED, USAGE, REFUSED, INTERRUPTED = 0, 1, 2, 3, 130
"""Exit statuses, the same as for other commands."""


class Raised:
    """The handler's last error, with its traceback, which the record of the task has as text only."""

    def __init__(self) -> None:
        self.error: BaseException | None = None

    def by(self, handler: Handler) -> Callable[..., Any]:
        """Returns the function of a handler, which keeps its error here."""
        function = handler.function

        def call(*arguments: Any, **members: Any) -> Any:
            with self._kept():
                return function(*arguments, **members)

        async def wait(*arguments: Any, **members: Any) -> Any:
            with self._kept():
                return await function(*arguments, **members)

        return functools.wraps(function)(wait if handler.is_async else call)

    @contextlib.contextmanager
    def _kept(self) -> Iterator[None]:
        try:
            yield
        except BaseException as error:
            self.error = error
            raise


def main(task_type: str, data: Any, pdb: bool) -> int:
    """Runs a handler of TASK_MODULES, prints its result as JSON, and returns the exit status."""
    settings = load_or_exit()
    logs.configure("run", settings.log_level, "text" if settings.log_format == "auto" else settings.log_format)
    try:
        return _run(settings, task_type, data, pdb)
    except Refused as refusal:
        hint = "; name the module of its handler with --module" if task_type not in registry.REGISTRY.handlers else ""
        print(f"firmq: {sanitize.plain(str(refusal))}{hint}", file=sys.stderr)
        return REFUSED
    except HandlerError as error:
        print(registry.explain(error), file=sys.stderr)
        return USAGE
    except KeyboardInterrupt:
        return INTERRUPTED


def _run(settings: Settings, task_type: str, data: Any, pdb: bool) -> int:
    """Runs a handler. Raises HandlerError for a module that cannot be imported, and Refused for unsuitable data."""
    raised = Raised()
    # Where the result is piped on, the handler's own output must not become part of it. On a terminal, a debugger needs
    # the real standard output.
    with contextlib.nullcontext() if sys.stdout.isatty() else contextlib.redirect_stdout(sys.stderr):
        client = LocalClient(settings=settings)
        client.outcomes = Outcomes(settings, [attempts.__file__, __file__])
        if handler := client.handlers.get(task_type):
            client.handlers = {**client.handlers, task_type: replace(handler, function=raised.by(handler))}
        task = client.get(client.submit(task_type, data, max_retries=0).task_id)
    if task.status is TaskState.COMPLETED:
        print(sanitize.plain(json.dumps(task.result, ensure_ascii=False)))
        return COMPLETED
    if raised.error is not None and any(is_a(each, (bdb.BdbQuit,)) for each in leaves(raised.error)):
        return INTERRUPTED
    _explain(task)
    if pdb and raised.error is not None:
        _debug(raised.error)
    return FAILED


def _explain(task: TaskDetail) -> None:
    error = task.attempts[-1].error
    if error:
        print((error.traceback or f"{error.type}: {error.message}").rstrip(), file=sys.stderr)


def _debug(error: BaseException) -> None:
    """Opens the debugger at the line that raised an error."""
    import pdb  # noqa: T100  # what --pdb asks for

    pdb.post_mortem(error.__traceback__)
