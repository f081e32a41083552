"""Makes threads belong to the task whose handler started them, as coroutines do by themselves."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from worker.handlers.context import CurrentTask, current


def inherit_current_task() -> None:
    """Makes new threads, and work submitted to thread pools, belong to the task that is current at that point.

    Otherwise a thread that an earlier task left behind, or a thread that it starts, looks like one of the
    running task. Python passes no context to threads; like OpenTelemetry's own instrumentation, this replaces two
    methods of the standard library.
    """
    start, submit = threading.Thread.start, ThreadPoolExecutor.submit

    def start_for_task(self: threading.Thread) -> None:
        task, run = current.get(), self.run

        def run_for_task() -> None:
            current.set(task)
            del self.run  # it refers to the thread and would keep it alive
            run()

        self.run = run_for_task  # type: ignore[method-assign]
        start(self)

    def submit_for_task(self: ThreadPoolExecutor, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        return submit(self, _call_for_task, current.get(), fn, *args, **kwargs)

    threading.Thread.start = start_for_task  # type: ignore[method-assign]
    ThreadPoolExecutor.submit = submit_for_task  # type: ignore[method-assign, assignment]


def _call_for_task(task: CurrentTask | None, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    token = current.set(task)  # the thread is its pool's, and was started for another task
    try:
        return fn(*args, **kwargs)
    finally:
        current.reset(token)
