"""One attempt of a task in an executor, however many others run beside it."""

from __future__ import annotations

import base64
import decimal
import os
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn

from pydantic import ValidationError

from firmq.shared.domain import task_data
from firmq.shared.domain.payload import PayloadReference, encode_result
from firmq.shared.domain.traceparent import TRACEPARENT, trace_id, unsampled
from firmq.shared.observability import tracing
from firmq.shared.stores.payloads import Payloads
from firmq.worker.executors import ipc
from firmq.worker.executors.attempt_record import attempt_record
from firmq.worker.executors.outcomes import (
    InvalidData,
    Judgement,
    Outcomes,
    UnknownTaskType,
    dump,
    explain,
    parsed,
)
from firmq.worker.executors.recorder import Recorder
from firmq.worker.executors.tracing import AttemptSpans
from firmq.worker.handlers import locking
from firmq.worker.handlers.context import CurrentTask, current
from firmq.worker.handlers.errors import is_error
from firmq.worker.handlers.hooks import COMPLETED, HOOKS, AttemptOutcome
from firmq.worker.handlers.parent_results import NONE, read_parent_results

if TYPE_CHECKING:
    from collections.abc import Mapping

    from firmq.shared.config.settings import Settings
    from firmq.worker.executors.ipc import Assignment, EndedAttempt
    from firmq.worker.executors.tracing import AttemptSpan
    from firmq.worker.handlers.attempt_steps import StepContext
    from firmq.worker.handlers.registry import Handler


class Attempts:
    """Shared by the attempts of one executor: the handlers, and the channel for events to the worker."""

    def __init__(
        self,
        handlers: Mapping[str, Handler],
        settings: Settings,
        worker: str,
        runner_files: Sequence[str],
        send: Callable[[tuple[Any, ...]], None],
    ) -> None:
        """`send` passes an event to the worker; `runner_files` are left out of the tracebacks of handlers."""
        self.handlers = handlers
        self.worker = worker
        self.settings = settings
        self.send = send
        self.hooked = HOOKS.of_tasks
        self.outcomes = Outcomes(settings, [__file__, *runner_files])
        self.spans = AttemptSpans(settings, worker, lambda data: self.send((ipc.SPAN, data)))
        self.payloads = Payloads.of(settings)
        self.max_log_bytes = settings.max_log_bytes

    def step_context(self, recorder: Recorder) -> StepContext:
        """Returns what the steps of a running attempt need."""
        from firmq.worker.handlers.attempt_steps import StepContext  # most handlers have no steps

        if recorder.assignment is None:
            raise RuntimeError("this attempt belongs to no task")
        assignment, outcomes = recorder.assignment, self.outcomes
        handler = self.handlers[assignment.type.decode()]
        return StepContext(
            recorder=recorder,
            handler=handler,
            attempt=assignment.attempt,
            settings=self.settings,
            encode=outcomes.json,
            longest_sleep=outcomes.max_delay,
            pin=self.version_of(handler) if handler.pin_version else "",
        )

    def version_of(self, handler: Handler) -> str:
        """Returns the version of a handler's type as this worker publishes it."""
        return handler.published(self.settings).version

    def on_line(self, number: int, line: str) -> None:
        """Sends a line of an attempt's log at once, in case this process dies."""
        self.send((ipc.LOG, number, line))

    def on_progress(self, number: int, fraction: float, message: str) -> None:
        self.send((ipc.PROGRESS, number, dump({"fraction": fraction, "message": message})))

    def report_leftovers(self, handler: str, what: str, level: int, ends: bool) -> None:
        """Reports a handler's leftovers, and whether this executor ends because of them."""
        printable = what[:1000].encode("utf-8", "backslashreplace").decode()
        self.send((ipc.LEFT, handler, printable, level, ends))


class Attempt:
    """One attempt, from its assignment to its outcome. `begin` is called in a context of its own."""

    __slots__ = (
        "assignment",
        "attempts",
        "cancelled",
        "clock_offset_us",
        "handler",
        "hooked",
        "judgement",
        "name",
        "recorder",
        "span",
        "started_us",
        "task",
    )

    def __init__(self, attempts: Attempts, assignment: Assignment, clock_offset_us: int) -> None:
        self.starts_now()
        self.attempts = attempts
        self.assignment = assignment
        self.clock_offset_us = clock_offset_us
        self.name = assignment.type.decode(errors="replace")
        self.handler = attempts.handlers.get(self.name)
        self.recorder = Recorder(
            assignment.number,
            attempts.max_log_bytes,
            attempts.on_line,
            attempts.on_progress,
            assignment=assignment,
        )
        self.task: CurrentTask | None = None
        self.span: AttemptSpan | None = None
        self.cancelled = False
        self.hooked = False
        """Whether its hooks have begun, so that those for its end are due."""
        self.judgement: Judgement | None = None

    def starts_now(self) -> None:
        """Sets the start from which its time limit counts."""
        self.started_us = time.monotonic_ns() // 1000

    @property
    def in_thread(self) -> bool:
        """Returns whether its handler is a plain function that runs in a thread."""
        return self.handler is not None and self.handler.threads

    @property
    def may_wait(self) -> bool:
        """Returns whether `prepared` may wait for a payload."""
        return task_data.may_refer(self.assignment.data)

    def begin(self) -> None:
        """Sets the current task and begins the span. Raises CorruptRecord."""
        assignment = self.assignment
        meta = parsed(assignment.meta, "metadata")
        traceparent = meta.get(TRACEPARENT)
        waited_us = self.started_us + self.clock_offset_us - assignment.enqueued_us
        self.span = self.attempts.spans.begin(assignment, meta, waited_us, self.recorder)
        parent_results = NONE
        if assignment.parent_results:
            parent_results = read_parent_results(assignment.parent_results, self.attempts.payloads.load)
        self.task = CurrentTask(
            id=assignment.id.decode(),
            type=self.name,
            attempt=assignment.attempt,
            failures=assignment.failures,
            worker=self.attempts.worker,
            traceparent=traceparent if isinstance(traceparent, str) else None,
            parent_results=parent_results,
            recorder=self.recorder,
            rq_job=assignment.rq_job,
            open_locks=locking.in_redis,
            step_context=self.attempts.step_context,
        )
        current.set(self.task)
        decimal.setcontext(decimal.getcontext().copy())  # attempts must not share a context that a module has used

    def call(self) -> Any:
        """Returns the handler's result: of a coroutine function, its coroutine.

        Raises the errors of `prepared`, and whatever the handler raises.
        """
        return self.prepared()()

    def prepared(self) -> Callable[[], Any]:
        """Returns the call of the handler with validated data.

        Raises UnknownTaskType, InvalidData, CorruptRecord, PayloadUnavailable.
        """
        parsed(self.assignment.retry, "retry policy")
        if self.handler is None:
            known = ", ".join(sorted(self.attempts.handlers))
            raise UnknownTaskType(
                f"this worker has no handler for {self.name!r}: name the module that registers it in TASK_MODULES; "
                f"it has: {known}"
            )
        data = task_data.decode(self.name, self.assignment.data)
        if isinstance(data, PayloadReference):
            data = self.attempts.payloads.load(data)
        try:
            arguments = self.handler.read(data)
        except ValidationError as error:
            raise InvalidData(explain(error)) from error
        return partial(self.handler.call, arguments)

    def result(self, value: object) -> bytes:
        """Returns a handler's result for its report. Raises ResultNotSerializable or ResultTooLarge."""
        return self.attempts.outcomes.result(value)

    def is_large(self, result: bytes) -> bool:
        """Returns whether a result becomes a payload."""
        payloads = self.attempts.payloads
        return payloads.store is not None and payloads.is_large(base64.b64decode(result))

    def keep_result(self, result: bytes) -> bytes:
        """Writes a result as a payload and returns the reference for its report. Raises PayloadUnavailable."""
        return encode_result(self.attempts.payloads.keep(self.assignment.id.decode(), base64.b64decode(result)))

    def judged(self, result: bytes | BaseException) -> AttemptOutcome:
        """Decides how the attempt ended, for its hooks. Nothing that happens later changes that."""
        if not is_error(result):
            return COMPLETED
        self.judgement = self._judge(result)
        return AttemptOutcome.after(result, *self.judgement)

    def _judge(self, error: BaseException) -> Judgement:
        judge = self.attempts.outcomes.judge
        return judge(self.assignment, self.handler, error, cancelled=self.cancelled, refusable=True)

    def ended(self, result: bytes | BaseException) -> EndedAttempt:
        """Returns the outcome, and ends the span."""
        self.recorder.ended = True
        outcome = self._outcome(result)
        if self.span is not None:
            self.span.end(outcome)
        if isinstance(result, BaseException):
            let_go(result)
        return outcome

    def _outcome(self, result: bytes | BaseException) -> EndedAttempt:
        assignment, outcomes = self.assignment, self.attempts.outcomes
        run_us = time.monotonic_ns() // 1000 - self.started_us
        started_us = self.started_us + self.clock_offset_us
        record = attempt_record(
            self.attempts.worker,
            self.attempts.settings.app_version,
            assignment.enqueued_us,
            started_us,
            started_us + run_us,
            self.task.traceparent if self.task else None,
            self.recorder.lines,
        )
        record |= self.recorder.spans.summary() if self.recorder.spans else {}
        if not is_error(result):
            return outcomes.completed(assignment.number, record, result, run_us, self.recorder.rq_job_end)
        judgement = self.judgement or self._judge(result)
        version = self.attempts.version_of(self.handler) if self.handler and type(result) is InvalidData else ""
        return outcomes.failed(assignment, result, record, run_us, judgement, version)


def leave(result: bytes | BaseException) -> NoReturn:
    """Ends a forked process that returned from the handler, as at the end of a program."""
    if isinstance(result, SystemExit):
        os._exit(result.code if isinstance(result.code, int) else 0 if result.code is None else 1)
    os._exit(1 if is_error(result) else 0)


_OF_ERROR, _OF_GROUP = vars(BaseException), vars(BaseExceptionGroup)


def let_go(error: BaseException) -> None:
    """Takes the tracebacks off an error and its causes: their frames hold the data of the handler.

    The frames are not cleared, because clearing the frame of a running task ends that task. The attributes are those
    of Python's own class: an error may be frozen, or have others of these names.
    """
    errors, known = [error], {id(error)}
    for each in errors:
        _OF_ERROR["__traceback__"].__set__(each, None)
        more = [_OF_ERROR[name].__get__(each) for name in ("__cause__", "__context__")]
        if issubclass(type(each), BaseExceptionGroup):
            more += _OF_GROUP["exceptions"].__get__(each)
        errors += (fresh := [other for other in more if other is not None and id(other) not in known])
        known.update(map(id, fresh))


def traceparent_of_current_task() -> str | None:
    """Returns the `traceparent` for a handler's calls without tracing: not sampled."""
    task = current.get()
    return (task.traceparent or unsampled()) if task else None


def log_context() -> dict[str, Any]:
    """Returns the fields of a log line of its task, also in a thread that outlives the attempt."""
    task = current.get()
    if task is None:
        return {}
    about = {"task_id": task.id, "attempt": task.attempt, "trace_id": trace_id(task.traceparent)}
    return {**about, **tracing.log_fields()}
