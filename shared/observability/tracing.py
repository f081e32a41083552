"""Tracing: the product's own spans, and the propagation of a request's trace with its task.

Off unless a collector is configured (`OTEL_EXPORTER_OTLP_ENDPOINT`, its traces variant, or `JAEGER_HOST`), or
`TRACE_LOCALLY` keeps spans of handlers with their tasks. Sampling is OpenTelemetry's own (`OTEL_TRACES_SAMPLER`, with
its argument) and is decided once, at submission. All later steps follow the flag of the W3C `traceparent` in the task's
meta; a task without one is not traced.

Attributes follow OpenTelemetry's conventions for messaging; `firmq.*` fills their gaps. The name of a span is
the operation and the task type: `send emails`, `process emails`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from opentelemetry import trace
from opentelemetry.trace import Link, Span, SpanContext, SpanKind, Status, StatusCode, TraceFlags
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from firmq.shared.config.collector import destination_of
from firmq.shared.config.settings import Settings
from firmq.shared.domain.task import TaskState
from firmq.shared.domain.traceparent import TRACEPARENT, Subject, attempt_span, dead_letter_span, is_sampled

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider

    from firmq.shared.domain.task import NewTask

_PROPAGATOR = TraceContextTextMapPropagator()
_SEND, _SETTLE = "send", "settle"


not_recorded: ContextVar[bool] = ContextVar("not_recorded", default=False)
"""Whether the current request is not recorded; tasks that it submits are not recorded either."""


class Tracing:
    """The tracer of one process, or a stand-in that does nothing when tracing is off."""

    def __init__(self, part: str, settings: Settings, instance: str = "", *, forwarded: bool = False) -> None:
        """`forwarded` is for a process whose spans another one sends, and which only continues traces."""
        destination = destination_of(settings)
        self.collected = destination is not None
        self.provider: TracerProvider | None = None
        self._processor: SpanProcessor | None = None
        self.tracer: trace.Tracer = trace.NoOpTracer()
        self.instance = instance
        if destination is None and not settings.trace_locally:
            return
        # Imported here so that processes without tracing save its memory and start-up time.
        from firmq.shared.observability.otlp import ChosenIds, processor_to, provider_of, sampler_of

        self.ids = ChosenIds()
        self.provider = provider_of(part, instance, settings.app_version, self.ids, sampler_of(destination, forwarded))
        self.tracer = self.provider.get_tracer("firmq")
        if destination is not None and not forwarded:
            self._processor = processor_to(destination)
            self.provider.add_span_processor(self._processor)

    @property
    def on(self) -> bool:
        return self.provider is not None

    # --- deciding ---

    def decide(self, traceparent: str | None) -> bool:
        """Returns whether a request is traced: by its traceparent, else by the sampler."""
        if self.provider is None:
            return False
        if traceparent is not None:
            return is_sampled(traceparent)
        sampler: Any = self.provider.sampler
        result = sampler.should_sample(None, self.ids.generate_trace_id(), "request", SpanKind.SERVER)
        return bool(result.decision.is_sampled())

    # --- spans of ours ---

    @contextmanager
    def sending(self, subject: Subject, traceparent: str | None, operation: str = _SEND) -> Iterator[str | None]:
        """Records a span around the submission of a task. Yields the `traceparent` to store with the task.

        The span joins the current trace, else the given one, else begins a trace. Unsampled submissions have no cost.
        """
        if not self.on:
            yield traceparent
            return
        recording = trace.get_current_span().is_recording()
        if not recording and (not_recorded.get() if traceparent is None else not is_sampled(traceparent)):
            yield traceparent
            return
        with self.tracer.start_as_current_span(
            f"{operation} {subject.type}",
            context=None if recording else context_from(traceparent),
            kind=SpanKind.PRODUCER,
            attributes=subject.attributes(operation, operation),
        ):
            yield current_traceparent()

    @contextmanager
    def firing(self, task: NewTask, schedule: str) -> Iterator[tuple[NewTask, Callable[[str], None]]]:
        """Records a span around the firing of a schedule, which begins the trace of its task.

        Yields the task with that trace, and a function that records the outcome.
        """
        with self.sending(task.subject, None) as travelling:
            span = trace.get_current_span()
            span.set_attribute("firmq.schedule.name", schedule)
            span.set_attribute("firmq.schedule.due_at", (task.meta or {}).get("due_at", ""))
            yield task.with_trace(travelling), lambda what: span.set_attribute("firmq.schedule.outcome", what)

    def storing(self, count: int) -> AbstractContextManager[object]:
        """Records a span around storing many tasks at once, each of which has its own span `create`."""
        if not trace.get_current_span().is_recording():
            return nullcontext()
        about = _batch(_SEND, count)
        return self.tracer.start_as_current_span("send batch", kind=SpanKind.CLIENT, attributes=about)

    @contextmanager
    def replaying(self, look_up: Callable[[], Sequence[tuple[Subject, str | None]]]) -> Iterator[str]:
        """Records a span around retrying dead letters, linked to their failures. Yields their new traceparent or "".

        `look_up` is called only if the span is recorded.
        """
        if not_recorded.get():
            yield ""
            return
        with self.tracer.start_as_current_span("replay", kind=SpanKind.PRODUCER) as span:
            if span.is_recording():
                _record_replay(span, look_up())
            yield current_traceparent() or ""

    def attempt(
        self, subject: Subject, traceparent: str | None, start_ns: int, waited_ns: int = 0, cause: Link | None = None
    ) -> Span:
        """Begins the span of an attempt, and records one for the preceding wait in the queue, if that is known."""
        context = context_from(traceparent)
        if waited_ns > 0:
            wait = self.tracer.start_span(
                f"wait {subject.type}", context, attributes=subject.attributes("wait"), start_time=start_ns - waited_ns
            )
            wait.end(start_ns)
        attributes = subject.attributes("process", "process")
        if self.instance:
            attributes["messaging.client.id"] = self.instance
        with self.ids.choose(attempt_span(subject.id, subject.attempt)):
            return self.tracer.start_span(
                f"process {subject.type}",
                context,
                SpanKind.CONSUMER,
                attributes=attributes,
                links=[each for each in (cause or _previous(subject, traceparent),) if each],
                start_time=start_ns,
                record_exception=False,
                set_status_on_exception=False,
            )

    def end_attempt(
        self,
        span: Span,
        subject: Subject,
        outcome: str,
        state: str,
        error: Mapping[str, Any] | None,
        end_ns: int | None = None,
    ) -> None:
        """Ends the span of an attempt, and records a span `dead-letter` if the task `state` is failed."""
        span.set_attribute("firmq.task.outcome", outcome)
        if error:
            kind, message = str(error.get("type", "")), str(error.get("message", ""))
            about = {"exception.type": kind, "exception.message": message}
            if error.get("traceback"):
                about["exception.stacktrace"] = str(error["traceback"])
            span.add_event("exception", about, end_ns)
            span.set_attribute("error.type", kind)
            span.set_status(Status(StatusCode.ERROR, f"{kind}: {message[:200]}"))
        span.end(end_ns)
        if state == TaskState.FAILED:
            self._dead_letter_span(span, subject, str((error or {}).get("type", "")), end_ns)

    def _dead_letter_span(self, last: Span, subject: Subject, error: str, at_ns: int | None) -> None:
        at = at_ns or time.time_ns()
        attributes = {**subject.attributes("dead-letter", _SETTLE), "error.type": error}
        with self.ids.choose(dead_letter_span(subject.id, subject.attempt)):
            span = self.tracer.start_span(
                f"dead-letter {subject.type}",
                trace.set_span_in_context(last),
                SpanKind.CLIENT,
                attributes=attributes,
                start_time=at,
            )
        span.end(at)

    def housekeeping(self, job: str, started_ns: int, items: int, error: BaseException | None) -> None:
        """Records a run of a housekeeping job that did something or failed, after its end; other runs have no span."""
        if not self.on or not (items or error):
            return
        about: dict[str, str | int] = {
            "firmq.housekeeping.job": job,
            "firmq.housekeeping.items": items,
            "firmq.housekeeping.instance": self.instance,
        }
        span = self.tracer.start_span(f"housekeeping {job}", attributes=about, start_time=started_ns)
        if error is not None:
            span.set_attribute("error.type", type(error).__name__)
            span.set_status(Status(StatusCode.ERROR, f"{type(error).__name__}: {str(error)[:200]}"))
        span.end()

    # --- the end ---

    def take(self, span: ReadableSpan) -> None:
        """Forwards a span of another process."""
        if self._processor is not None:
            self._processor.on_end(span)

    def stop(self, patience: float = 1.5) -> None:
        """Sends remaining spans, but waits at most `patience` seconds for the collector."""
        if self.provider is None:
            return
        from firmq.shared.observability.otlp import shut_down

        shut_down(self.provider.shutdown, patience)


# --- the context ------------------------------------------------------------------------------------------------


def context_from(traceparent: str | None) -> Context:
    """Returns the context of a traceparent; an empty one, in which a trace begins, for None."""
    return _PROPAGATOR.extract({TRACEPARENT: traceparent or ""})


def current_traceparent(context: Context | None = None) -> str | None:
    """Returns the traceparent with which attempts join the trace of `context` (default: the current one), or None."""
    carrier: dict[str, str] = {}
    _PROPAGATOR.inject(carrier, context)
    return carrier.get(TRACEPARENT)


def link_to(traceparent: str | None, what: str) -> Link | None:
    """Returns a link to the span of a `traceparent`, or None."""
    context = trace.get_current_span(context_from(traceparent)).get_span_context()
    return Link(context, {"firmq.link": what}) if context.is_valid else None


def log_fields() -> dict[str, str]:
    """Returns the ids of the current span for a log line."""
    context = trace.get_current_span().get_span_context()
    if not context.is_valid:
        return {}
    return {"trace_id": f"{context.trace_id:032x}", "span_id": f"{context.span_id:016x}"}


def _batch(operation: str, count: int) -> dict[str, str | int]:
    return {
        "messaging.system": "firmq",
        "messaging.operation.name": operation,
        "messaging.operation.type": _SEND,
        "messaging.batch.message_count": count,
    }


def _record_replay(span: Span, dead: Sequence[tuple[Subject, str | None]]) -> None:
    one = dead[0][0] if len(dead) == 1 else None
    span.update_name(f"replay {one.type if one else 'batch'}")
    span.set_attributes(one.attributes("replay", _SEND) if one else _batch("replay", len(dead)))
    for each in dead:
        if context := _dead_letter(*each):
            span.add_link(context, {"firmq.link": "dead letter"})


def _previous(subject: Subject, traceparent: str | None) -> Link | None:
    """Returns a link from a retry to the attempt before it, or None."""
    if subject.attempt < 2:
        return None
    context = _beside(traceparent, attempt_span(subject.id, subject.attempt - 1))
    return Link(context, {"firmq.link": "previous attempt"}) if context else None


def _dead_letter(subject: Subject, traceparent: str | None) -> SpanContext | None:
    return _beside(traceparent, dead_letter_span(subject.id, subject.attempt)) if is_sampled(traceparent) else None


def _beside(traceparent: str | None, span_id: int) -> SpanContext | None:
    """Returns the context of a span with a known id in the trace of a task, or None."""
    parent = trace.get_current_span(context_from(traceparent)).get_span_context()
    if not parent.is_valid:
        return None
    return SpanContext(parent.trace_id, span_id, is_remote=True, trace_flags=TraceFlags(parent.trace_flags))
