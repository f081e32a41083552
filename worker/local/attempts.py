"""One attempt in the caller's process: the same reading, running and judging as in an executor."""

from __future__ import annotations

import asyncio
import json
import logging
import signal
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from shared.config.settings import Settings
from shared.domain import payload
from worker.executors.ipc import Assignment, Outcome
from worker.executors.log_capture import LogCapture
from worker.executors.outcomes import InvalidData, Outcomes, explain
from worker.executors.recorder import Recorder
from worker.handlers.context import CurrentTask, current
from worker.handlers.registry import Handler
from worker.handlers.signals import TimeLimitExceeded

if TYPE_CHECKING:
    from worker.local.tasks import LocalTask

WORKER = "local"


class Attempts:
    """Runs handlers, and says how that ended in the words of an executor."""

    def __init__(self, handlers: Mapping[str, Handler], settings: Settings) -> None:
        self.handlers = handlers
        self.limit = settings.task_timeout
        self.log_bytes = settings.max_log_bytes
        self.outcomes = Outcomes(settings, [__file__])

    def run(self, task: LocalTask, now: float) -> Outcome:
        """Runs one attempt of a task. What a handler raises is its outcome; Ctrl-C is the caller's."""
        handler = self.handlers[task.type]
        assignment = self._assignment(task, handler, now)
        begun = time.perf_counter()
        error: BaseException | None = None
        result = b""
        recorder = Recorder(0, self.log_bytes, lambda number, line: None, task.report, pause=0)
        with _logging_to(recorder):
            try:
                result = self._call(handler, assignment, task, recorder)
            except KeyboardInterrupt:
                raise
            except BaseException as caught:  # a handler may raise SystemExit or its own BaseException
                error = caught
        run_us = int((time.perf_counter() - begun) * 1_000_000)
        began_us = int(now * 1_000_000)
        record: dict[str, Any] = {
            "worker": WORKER,
            "enqueued_at": int(task.enqueued_at * 1_000_000),
            "started_at": began_us,
            "ended_at": began_us + run_us,
        }
        if recorder.lines:
            record["logs"] = list(recorder.lines)
        if error is None:
            return self.outcomes.completed(assignment.number, record, result, run_us)
        return self.outcomes.failed(assignment, handler, error, record, run_us, cancelled=False)

    def _assignment(self, task: LocalTask, handler: Handler, now: float) -> Assignment:
        limit = task.timeout or (handler.timeout.total_seconds() if handler.timeout else self.limit)
        return Assignment(
            number=0,
            id=task.id.encode(),
            type=task.type.encode(),
            call=payload.encode(task.type, task.data).encode(),
            attempt=task.attempt,
            failures=task.failures,
            retry=json.dumps(task.retry).encode(),
            meta=b"",
            enqueued_us=int(now * 1_000_000),
            limit=limit,
        )

    def _call(self, handler: Handler, assignment: Assignment, task: LocalTask, recorder: Recorder) -> bytes:
        try:
            arguments = handler.read(payload.decode(task.type, assignment.call))
        except ValidationError as error:
            raise InvalidData(explain(error)) from error
        about = CurrentTask(
            id=task.id,
            type=task.type,
            attempt=task.attempt,
            failures=task.failures,
            parent_results=task.parent_results,
            recorder=recorder,
        )
        token = current.set(about)
        try:
            with _time_limit(assignment.limit):
                value = handler.call(arguments)
                return self.outcomes.result(asyncio.run(value) if handler.is_async else value)
        finally:
            current.reset(token)


@contextmanager
def _logging_to(recorder: Recorder) -> Iterator[None]:
    """Records what the whole process logs: its threads are the caller's, so whose they are is not known."""
    tail = LogCapture(lambda: recorder)
    logging.getLogger().addHandler(tail)
    try:
        yield
    finally:
        logging.getLogger().removeHandler(tail)
        recorder.ended = True


@contextmanager
def _time_limit(seconds: float) -> Iterator[None]:
    """Raises TimeLimitExceeded inside when the time is over; in the main thread only, as signals reach no other."""
    if threading.current_thread() is not threading.main_thread() or not hasattr(signal, "setitimer"):
        yield
        return

    def over(number: int, frame: FrameType | None) -> None:
        raise TimeLimitExceeded(f"it ran longer than its time limit of {seconds:g} s")

    before = signal.signal(signal.SIGALRM, over)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
