"""An executor: a process that runs one handler after another, for as long as its worker lives.

It has no connection to Redis. Tasks arrive through one pipe and outcomes leave by another (`worker.executors.ipc`);
the worker holds the leases, so a handler that is stuck in C code loses only its own time limit.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextvars import copy_context
from types import FrameType
from typing import Any, NoReturn

from pydantic import ValidationError

from shared.config.settings import Settings, load
from shared.domain import task_data
from shared.domain.traceparent import TRACEPARENT, trace_id, unsampled
from shared.failpoints import failpoint
from shared.observability import logs, tracing
from shared.observability.instrumentation import trace_calls, trace_redis
from shared.stores.task_types import pack, version_of
from worker.executors import ipc, standard_streams
from worker.executors.attempt_record import attempt_record
from worker.executors.coroutines import CoroutineRunner
from worker.executors.ipc import CANCEL_SIGNAL, TIME_LIMIT_SIGNAL, Assignment, EndedAttempt, ExecutorEnds
from worker.executors.leftovers import Leftovers
from worker.executors.log_capture import LogCapture
from worker.executors.operating_system import die_with_parent
from worker.executors.outcomes import InvalidData, Outcomes, UnknownTaskType, dump, explain, parsed
from worker.executors.recorder import Recorder
from worker.executors.threads import inherit_context
from worker.executors.tracing import AttemptSpans
from worker.handlers import locking, registry
from worker.handlers.context import CurrentTask, current
from worker.handlers.parent_results import read_parent_results
from worker.handlers.registry import Handler, HandlerError
from worker.handlers.signals import TaskCancelled, TimeLimitExceeded

_CANCEL_WAIT = 1.0
"""Seconds for which cancelled coroutines of an ended handler may still run."""


class Executor:
    """Runs assignments one by one."""

    def __init__(self, handlers: dict[str, Handler], settings: Settings, worker: str, ends: ExecutorEnds) -> None:
        self.handlers = handlers
        self.worker = worker
        self.ends = ends
        self.spans = AttemptSpans(settings, worker, self._on_span)
        self.outcomes = Outcomes(settings, [__file__])
        self.max_log_bytes = settings.max_log_bytes
        self.coroutines = CoroutineRunner(min(_CANCEL_WAIT, settings.kill_grace / 2))
        self.interrupted_by = ""
        self.started_us = 0
        self.limit_us = 0
        self.task: CurrentTask | None = None
        self.interruptible = False
        self.cancelled = False
        self.pid = os.getpid()
        self.main_thread = threading.get_ident()
        self.sending = threading.Lock()

    # --- the loop ---

    def run(self) -> None:
        """Runs tasks until the worker closes the pipes, or one leaves this process unfit for another."""
        self._send((ipc.HELLO, *pack(handler.published() for handler in self.handlers.values())))
        os.register_at_fork(after_in_child=self._on_fork)
        signal.signal(TIME_LIMIT_SIGNAL, self._on_time_limit)
        signal.signal(CANCEL_SIGNAL, self._on_cancel)
        self.leftovers = Leftovers(self._report_leftovers)
        for clock_offset_us, assignment in self._assignments():
            failpoint("executor.begin")
            # A context of its own: context variables of a handler reach no other task.
            outcome = copy_context().run(self.attempt, assignment, clock_offset_us)
            failpoint("executor.done")
            self._send((ipc.OUTCOME, *outcome))
            failpoint("executor.sent")
            if not self._fit(assignment, outcome.run_us):
                return

    def _fit(self, assignment: Assignment, run_us: int) -> bool:
        """Returns whether this process can run another task; else the worker gets the reason and replaces it."""
        handler = self.task.type if self.task else assignment.type.decode(errors="replace")
        if self.interrupted_by:
            # Its work is half done: an import, a lock, a message on a pooled database connection.
            self._report_leftovers(handler, f"work cut off by {self.interrupted_by}", logging.INFO, ends=True)
        elif self.coroutines.left:
            what = f"coroutines that ignore being cancelled ({self.coroutines.left})"
            self._report_leftovers(handler, what, logging.WARNING, ends=True)
        else:
            return self.leftovers.fit_after(handler, run_us)
        return False

    def _report_leftovers(self, handler: str, what: str, level: int, ends: bool) -> None:
        printable = what[:1000].encode("utf-8", "backslashreplace").decode()
        self._send((ipc.LEFT, handler, printable, level, ends))

    def _assignments(self) -> Iterator[tuple[int, Assignment]]:
        """Yields the tasks with a start token; those whose token was revoked are skipped."""
        waiting: deque[tuple[int, Assignment]] = deque()
        with os.fdopen(self.ends.tasks, "rb", buffering=1 << 16) as file:
            for number in ipc.read_start_tokens(self.ends.start_tokens, self.leftovers.fit_when_idle):
                while True:
                    while not waiting:
                        frame = ipc.read_frame(file)
                        if frame is None:
                            return
                        waiting.extend((frame[0], Assignment(*fields)) for fields in frame[1])
                    item = waiting.popleft()
                    if item[1].number == number:
                        break
                yield item

    # --- one attempt ---

    def attempt(self, assignment: Assignment, clock_offset_us: int) -> EndedAttempt:
        """Runs one task and returns its outcome; exceptions of the handler are caught."""
        self.started_us = time.monotonic_ns() // 1000
        self.limit_us = int(assignment.limit * 1_000_000)
        self.task = None
        self.cancelled = False
        recorder = Recorder(assignment.number, self.max_log_bytes, self._on_line, self._on_progress)
        name = assignment.type.decode(errors="replace")
        handler = self.handlers.get(name)
        result: bytes | BaseException
        try:
            self.task = self._context(assignment, name, self.started_us + clock_offset_us, recorder)
            current.set(self.task)
            self.interruptible = True
            result = self._run(handler, name, assignment)
            self.interruptible = False
        except BaseException as caught:  # a handler may raise SystemExit, KeyboardInterrupt or its own BaseException
            result = caught
        self.interruptible = False
        if os.getpid() != self.pid:
            _leave(result)
        recorder.ended = True
        ended = self._ended(assignment, handler, recorder, clock_offset_us, result)
        self.spans.end(ended)
        return ended

    def _ended(
        self,
        assignment: Assignment,
        handler: Handler | None,
        recorder: Recorder,
        clock_offset_us: int,
        result: bytes | BaseException,
    ) -> EndedAttempt:
        run_us = time.monotonic_ns() // 1000 - self.started_us
        started_us = self.started_us + clock_offset_us
        traceparent = self.task.traceparent if self.task else None
        record = attempt_record(
            self.worker, assignment.enqueued_us, started_us, started_us + run_us, traceparent, recorder.lines
        )
        record |= self.spans.summary()
        if isinstance(result, bytes):
            return self.outcomes.completed(assignment.number, record, result, run_us)
        version = version_of(handler.published().entry) if handler and isinstance(result, InvalidData) else ""
        return self.outcomes.failed(
            assignment, handler, result, record, run_us, cancelled=self.cancelled, version=version
        )

    def _run(self, handler: Handler | None, name: str, assignment: Assignment) -> bytes:
        """Returns the result of the handler in the form of its report."""
        parsed(assignment.retry, "retry policy")
        if handler is None:
            known = ", ".join(sorted(self.handlers))
            raise UnknownTaskType(
                f"this worker has no handler for {name!r}: name the module that registers it in TASK_MODULES; "
                f"it has: {known}"
            )
        value = handler.call(_validated(handler, task_data.decode(name, assignment.data)))
        return self.outcomes.result(self.coroutines.run(value) if handler.is_async else value)

    def _context(self, assignment: Assignment, name: str, started_us: int, recorder: Recorder) -> CurrentTask:
        meta = parsed(assignment.meta, "metadata")
        traceparent = meta.get(TRACEPARENT)
        self.spans.begin(assignment, meta, started_us - assignment.enqueued_us, recorder)
        return CurrentTask(
            id=assignment.id.decode(),
            type=name,
            attempt=assignment.attempt,
            failures=assignment.failures,
            traceparent=traceparent if isinstance(traceparent, str) else None,
            parent_results=read_parent_results(assignment.parent_results),
            recorder=recorder,
            open_locks=locking.in_redis,
        )

    def carries(self) -> str | None:
        """Returns the `traceparent` for a handler's calls without tracing: not sampled."""
        task = current.get()
        return (task.traceparent or unsampled()) if task else None

    # --- interruption ---

    def _on_time_limit(self, signum: int, frame: FrameType | None) -> None:
        # The signal may arrive after its task has ended: then the next one has not reached its limit.
        if self.interruptible and time.monotonic_ns() // 1000 - self.started_us >= self.limit_us:
            self.interruptible = False
            self.interrupted_by = "its time limit"
            raise TimeLimitExceeded(f"the task exceeded its time limit of {self.limit_us / 1_000_000:g} s")

    def _on_cancel(self, signum: int, frame: FrameType | None) -> None:
        if self.interruptible:
            self.interruptible = False
            self.cancelled = True
            self.interrupted_by = "cancelling it"
            raise TaskCancelled("the task was cancelled while it ran")

    # --- events ---

    def _on_line(self, number: int, line: str) -> None:
        """Sends a line of an attempt's log at once, in case this process dies."""
        self._send((ipc.LOG, number, line))

    def _on_progress(self, number: int, fraction: float, message: str) -> None:
        self._send((ipc.PROGRESS, number, dump({"fraction": fraction, "message": message})))

    def _on_span(self, data: bytes) -> None:
        self._send((ipc.SPAN, data))

    def _send(self, value: tuple[Any, ...]) -> None:
        """Writes one whole frame, without interruption by threads of the handler or signals."""
        data = ipc.frame(value)
        ours = threading.get_ident() == self.main_thread
        interruptible = self.interruptible
        if ours:
            self.interruptible = False  # the worker sends its signal again
        try:
            with self.sending:
                written = os.write(self.ends.events, data)
                while written < len(data):
                    written += os.write(self.ends.events, data[written:])
        finally:
            if ours:
                self.interruptible = interruptible

    def _on_fork(self) -> None:
        """Closes the pipes of the executor in a process that a handler forked."""
        if self.task and self.task.recorder:
            self.task.recorder.mute()
        self.spans.mute()
        self.interruptible = False
        for fd in (self.ends.tasks, self.ends.start_tokens, self.ends.events):
            with contextlib.suppress(OSError):
                os.close(fd)


def _validated(handler: Handler, data: bytes) -> Any:
    try:
        return handler.read(data)
    except ValidationError as error:
        raise InvalidData(explain(error)) from error


def _leave(result: bytes | BaseException) -> NoReturn:
    """Ends a forked process that returned from the handler, as at the end of a program."""
    if isinstance(result, SystemExit):
        os._exit(result.code if isinstance(result.code, int) else 0 if result.code is None else 1)
    os._exit(0 if isinstance(result, bytes) else 1)


def log_context() -> dict[str, Any]:
    """Returns the fields of a log line of its task, also in a thread that outlives the attempt."""
    task = current.get()
    if task is None:
        return {}
    about = {"task_id": task.id, "attempt": task.attempt, "trace_id": trace_id(task.traceparent)}
    return {**about, **tracing.log_fields()}


def main(arguments: list[str]) -> int:
    """`python -m worker.executors.child WORKER PARENT-PID FD,FD,FD`; started by the worker only."""
    worker, parent, ends = arguments[0], int(arguments[1]), ExecutorEnds.from_argument(arguments[2])
    die_with_parent(parent)
    # The terminal's Ctrl-C and a service manager's SIGTERM are handled by the worker.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    standard_streams.never_fail()
    settings = load()
    logs.configure("worker", settings.log_level, settings.log_format, instance=worker, context=log_context)
    try:
        handlers = registry.load(settings.task_modules).handlers
    except HandlerError as error:
        print(error, file=sys.stderr)
        return 2
    executor = Executor(handlers, settings, worker, ends)
    logging.getLogger().addHandler(LogCapture())
    inherit_context()
    trace_redis(executor.spans.tracing)
    trace_calls(executor.spans.tracing, executor.carries)
    executor.run()
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
