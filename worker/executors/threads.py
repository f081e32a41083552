"""Makes threads belong to the task whose handler started them, as coroutines do."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from typing import Any


def inherit_context() -> None:
    """Makes new threads, and work submitted to thread pools, run in a copy of the context variables at that point.

    These hold the current task and its span. Otherwise a thread that an earlier task left behind, or a thread that it
    starts, looks like one of the running task. Python passes no context to threads before 3.14; like OpenTelemetry's
    own instrumentation, this replaces two methods of the standard library.
    """
    start, submit = threading.Thread.start, ThreadPoolExecutor.submit

    def start_in_context(self: threading.Thread) -> None:
        context, run = copy_context(), self.run

        def run_in_context() -> None:
            del self.run  # it refers to the thread and would keep it alive
            context.run(run)

        self.run = run_in_context  # type: ignore[method-assign]
        start(self)

    def submit_in_context(
        self: ThreadPoolExecutor, fn: Callable[..., Any], /, *args: Any, **kwargs: Any
    ) -> Future[Any]:
        return submit(self, copy_context().run, fn, *args, **kwargs)

    threading.Thread.start = start_in_context  # type: ignore[method-assign]
    ThreadPoolExecutor.submit = submit_in_context  # type: ignore[method-assign, assignment]
