"""Spans in the pipe from an executor to its worker: plain values for marshal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from worker.executors import ipc

if TYPE_CHECKING:
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import ReadableSpan
    from opentelemetry.trace import SpanContext


def pack(span: ReadableSpan) -> tuple[Any, ...]:
    """Returns a frame with everything about a span except its resource."""
    scope = span.instrumentation_scope
    return (
        ipc.SPAN,
        span.name,
        _ids(span.context),
        _ids(span.parent),
        _plain(span.attributes),
        [(event.name, _plain(event.attributes), event.timestamp) for event in span.events],
        [(_ids(link.context), _plain(link.attributes)) for link in span.links],
        span.kind.value,
        (span.status.status_code.value, span.status.description),
        (span.start_time, span.end_time),
        (scope.name, scope.version, scope.schema_url) if scope else None,
    )


def unpack(fields: Sequence[Any], resource: Resource) -> ReadableSpan:
    """Returns the span from a frame, with the resource of this process."""
    from opentelemetry.sdk.trace import Event, ReadableSpan
    from opentelemetry.sdk.util.instrumentation import InstrumentationScope
    from opentelemetry.trace import Link, SpanKind, Status, StatusCode

    name, own, parent, attributes, events, links, kind, status, times, scope = fields
    return ReadableSpan(
        name,
        _context(own),
        _context(parent) if parent else None,
        resource,
        attributes,
        [Event(what, about, at) for what, about, at in events],
        [Link(_context(ids), about) for ids, about in links],
        SpanKind(kind),
        status=Status(StatusCode(status[0]), status[1]),
        start_time=times[0],
        end_time=times[1],
        instrumentation_scope=InstrumentationScope(*scope) if scope else None,
    )


def _ids(context: SpanContext | None) -> tuple[int, int, int] | None:
    return (context.trace_id, context.span_id, int(context.trace_flags)) if context else None


def _context(ids: tuple[int, int, int]) -> SpanContext:
    from opentelemetry.trace import SpanContext, TraceFlags

    trace_id, span_id, flags = ids
    return SpanContext(trace_id, span_id, is_remote=True, trace_flags=TraceFlags(flags))


def _plain(attributes: Mapping[str, Any] | None) -> dict[str, Any]:
    """Returns attributes for marshal: texts, numbers, and sequences of those."""
    return {str(name): _value(value) for name, value in (attributes or {}).items()}


def _value(value: Any) -> Any:
    if isinstance(value, bool | int | float):
        return value
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_value(each) for each in value]
    return str(value)  # also for subclasses of str
