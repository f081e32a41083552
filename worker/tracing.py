"""The span of an attempt, by OpenTelemetry's conventions for messaging."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from opentelemetry.trace import SpanKind, Status, StatusCode

from shared.telemetry import TRACEPARENT, Tracing, context_from, is_sampled
from worker.handlers.context import CurrentTask


class AttemptSpans:
    """Opens a span around a handler, for tasks whose trace is recorded."""

    def __init__(self, tracing: Tracing, worker: str) -> None:
        self.tracing = tracing
        self.worker = worker

    def wanted(self, task: CurrentTask) -> bool:
        """Whether a span of this attempt would be recorded."""
        return self.tracing.on and is_sampled(task.traceparent)

    @contextmanager
    def around(self, task: CurrentTask) -> Iterator[None]:
        """The handler runs inside; what it raises is recorded and raised on."""
        context = context_from({TRACEPARENT: task.traceparent or ""})
        attributes: dict[str, str | int] = {
            "messaging.system": "taskqueue",
            "messaging.operation.type": "process",
            "messaging.message.id": task.id,
            "taskqueue.task.type": task.type,
            "taskqueue.task.attempt": task.attempt,
            "taskqueue.worker": self.worker,
        }
        with self.tracing.tracer.start_as_current_span(
            f"process {task.type}",
            context=context,
            kind=SpanKind.CONSUMER,
            attributes=attributes,
            record_exception=False,
            set_status_on_exception=False,
        ) as span:
            try:
                yield
            except BaseException as error:
                span.record_exception(error)
                span.set_status(Status(StatusCode.ERROR, f"{type(error).__name__}: {str(error)[:200]}"))
                raise
