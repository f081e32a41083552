"""The spans of attempts: created in the executor, forwarded by its worker.

An executor passes each span through its pipe as soon as it has ended, so a crash loses only open ones, and the worker
reports the attempt that died.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from opentelemetry import context, trace
from opentelemetry.trace import Link, Span

from firmq.shared.domain.traceparent import REPLAY, REPLAY_AFTER, TRACEPARENT, Subject, is_sampled
from firmq.shared.observability.tracing import Tracing, link_to

if TYPE_CHECKING:
    from firmq.shared.config.settings import Settings
    from firmq.worker.engine.claimed_task import ClaimedTask
    from firmq.worker.engine.redis_session import Report
    from firmq.worker.executors.ipc import Assignment, EndedAttempt
    from firmq.worker.executors.recorder import Recorder
    from firmq.worker.executors.span_pipe import SpanWriter


class AttemptSpan:
    """The span of one attempt."""

    __slots__ = ("span", "subject", "tracing")

    def __init__(self, tracing: Tracing, span: Span, subject: Subject) -> None:
        self.tracing = tracing
        self.span = span
        self.subject = subject

    def end(self, ended: EndedAttempt) -> None:
        error = json.loads(ended.record).get("error") if ended.error_type else None
        self.tracing.end_attempt(self.span, self.subject, ended.outcome, ended.state, error)


class AttemptSpans:
    """The executor's side: the spans of attempts, and those that their handlers make."""

    def __init__(self, settings: Settings, worker: str, send: Callable[[bytes], None]) -> None:
        """`send` passes a span to the worker."""
        self.tracing = Tracing("worker", settings, worker, forwarded=True)
        self._writer: SpanWriter | None = None
        if self.tracing.provider is None:
            return
        from firmq.worker.executors.span_pipe import SpanWriter

        self._writer = SpanWriter(send if self.tracing.collected else _ignore)
        self.tracing.provider.add_span_processor(self._writer)
        # Handlers that make spans by themselves get this provider, unless their module has set another.
        if isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider):
            trace.set_tracer_provider(self.tracing.provider)

    def begin(
        self, assignment: Assignment, meta: Mapping[str, Any], waited_us: int, recorder: Recorder
    ) -> AttemptSpan | None:
        """Begins the attempt's span in the current context; returns None unless its trace is sampled."""
        if self._writer is None:
            return None
        self._writer.begin(recorder)
        traceparent = meta.get(TRACEPARENT)
        if not isinstance(traceparent, str) or not is_sampled(traceparent):
            return None
        subject = Subject(
            id=assignment.id.decode(),
            type=assignment.type.decode(errors="replace"),
            queue=assignment.queue.decode(errors="replace"),
            attempt=assignment.attempt,
        )
        waited_ns = max(0, waited_us) * 1000 if assignment.enqueued_us else 0
        cause = _replay_link(meta, assignment.attempt)
        span = self.tracing.attempt(subject, traceparent, time.time_ns(), waited_ns, cause)
        context.attach(trace.set_span_in_context(span))
        return AttemptSpan(self.tracing, span, subject)

    def mute(self) -> None:
        """Sends no more spans: this process was forked by a handler and has no pipes."""
        if self._writer is not None:
            self._writer.send = _ignore


def _ignore(data: bytes) -> None:
    pass


class SpanForwarder:
    """The worker's side: forwards spans of executors, and reports attempts that died with their executor."""

    def __init__(self, tracing: Tracing) -> None:
        self.tracing = tracing

    def forward(self, data: bytes) -> None:
        """Forwards a span from an executor."""
        if self.tracing.provider is not None:
            from firmq.worker.executors.span_pipe import unpack

            self.tracing.take(unpack(data, self.tracing.provider.resource))

    def crashed(self, claimed: ClaimedTask, began_at: float, report: Report) -> None:
        """Reports an attempt whose executor died or was killed."""
        if not self.tracing.on or not (traceparent := claimed.traceparent) or not is_sampled(traceparent):
            return
        subject = Subject(id=claimed.id.decode(), type=claimed.name, queue=claimed.queue_name, attempt=claimed.attempt)
        now = time.time_ns()
        began = now - int((time.monotonic() - began_at) * 1_000_000_000)
        cause = _replay_link(claimed.about, claimed.attempt)
        span = self.tracing.attempt(subject, traceparent, began, cause=cause)
        error = json.loads(report.ended.record).get("error")
        self.tracing.end_attempt(span, subject, report.ended.outcome, report.ended.state, error, now)


def _replay_link(meta: Mapping[str, Any], attempt: int) -> Link | None:
    """Returns the link to the span that requeued the task, for the first attempt after it."""
    if meta.get(REPLAY_AFTER) != attempt - 1:
        return None
    replay = meta.get(REPLAY)
    return link_to(replay, "replay") if isinstance(replay, str) else None
