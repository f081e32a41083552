"""The task context of a running handler, and its progress."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from firmq.shared.stores.locks import Locks, NoLocks
from firmq.worker.executors.recorder import Recorder
from firmq.worker.handlers.errors import describe
from firmq.worker.handlers.parent_results import NONE, EndedBatch, ParentResults, ParentTask

if TYPE_CHECKING:
    from firmq.worker.handlers.attempt_steps import StepContext

LOCAL_WORKER = "local"
"""The `worker` of a task that a LocalClient runs."""

log = logging.getLogger(__name__)


def _no_locks(owner: str, name: str) -> AbstractContextManager[Locks]:
    return nullcontext(NoLocks())


@dataclass(frozen=True, slots=True, kw_only=True)
class CurrentTask:
    """The running task. `attempt` counts from 1; `failures` is how often it failed before; `worker` runs it."""

    id: str
    type: str
    attempt: int
    failures: int
    worker: str = ""
    traceparent: str | None = None
    parent_results: ParentResults = field(default=NONE, repr=False)
    recorder: Recorder | None = field(default=None, repr=False)
    rq_job: tuple[Any, ...] = field(default=(), repr=False)
    open_locks: Callable[[str, str], AbstractContextManager[Locks]] = field(default=_no_locks, repr=False)
    step_context: Callable[[Recorder], StepContext] | None = field(default=None, repr=False)

    @property
    def parents(self) -> list[ParentTask]:
        """Returns the tasks that it depended on, in its order, each with its end and result."""
        return list(self.parent_results.parents.values())

    def parent(self, task_id: str) -> ParentTask:
        """Returns the parent of this id. Raises KeyError when the task did not depend on it."""
        return self.parent_results.parents[task_id]

    @property
    def batch(self) -> EndedBatch | None:
        """Returns the batch that this task follows (`then`), with its counts."""
        return self.parent_results.batch


current: ContextVar[CurrentTask | None] = ContextVar("current_task", default=None)


def current_task() -> CurrentTask:
    """Returns the running task, also in threads of its handler. Raises RuntimeError outside of a handler."""
    task = current.get()
    if task is None:
        raise RuntimeError("current_task() works only inside a handler")
    if task.recorder and task.recorder.ended:
        raise RuntimeError(
            f"current_task() works only while the handler runs: task {task.id}, which started this, has ended"
        )
    return task


def report_progress(fraction: float, message: object = "") -> None:
    """Reports progress: a fraction from 0 to 1 and a few words, shown by GET /tasks/{id}.

    Cheap: calls faster than a few times a second are merged. Does nothing outside of a handler, so that the function
    can be called in tests. Never fails: a number out of range counts as 0 or 1, and anything else is logged.
    """
    task = current.get()
    if task is None or not task.recorder:
        return
    try:
        done, text = float(fraction), "" if message is None else str(message)[:500]
    except Exception as error:
        log.warning("report_progress needs a fraction from 0 to 1 and a text: %s", describe(error))
    else:
        task.recorder.progress(min(1.0, max(0.0, done)) if done == done else 0.0, text)


async def progress(fraction: float, message: str = "") -> None:
    """Reports progress as `report_progress` does, and gives other tasks of the event loop a turn.

    Does nothing else outside of a handler.
    """
    import asyncio  # imported already where this runs; plain functions do not need it

    report_progress(fraction, message)
    await asyncio.sleep(0)
