"""Passes spans from an executor to its worker. Imported only where tracing is on.

The worker sends them to the collector, not the executor: a span that has ended survives the crash of its executor,
executors need no memory and no connections for it, and a handler that forks forks no exporter.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from opentelemetry.sdk.trace import Event, ReadableSpan, SpanProcessor
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import Link, SpanContext, SpanKind, Status, StatusCode, TraceFlags

from firmq.worker.executors.log_capture import of_current_task
from firmq.worker.executors.recorder import HandlerSpans

if TYPE_CHECKING:
    from opentelemetry.sdk.resources import Resource

    from firmq.worker.executors.recorder import Recorder

MOST_SENT = 1000
"""Spans of a handler that are sent for one attempt: a flood of them would keep the worker from its tasks."""
LARGEST = 1 << 20
"""Bytes of the largest span that is sent: a worker ends an executor whose frame is too large for the pipe."""
_LONGEST_NAME = 100
_OURS = "firmq"


class SpanWriter(SpanProcessor):
    """Takes ended spans in an executor: sends each to the worker, and summarizes a handler's spans for its record."""

    def __init__(self, send: Callable[[bytes], None]) -> None:
        self.send = send
        self._strays = 0

    def begin(self, recorder: Recorder) -> None:
        """Begins another attempt."""
        recorder.spans = HandlerSpans(time.time_ns())
        self._strays = 0

    def on_end(self, span: ReadableSpan) -> None:
        ours = span.instrumentation_scope is not None and span.instrumentation_scope.name == _OURS
        if not ours and self._count(span) > MOST_SENT:
            return
        with suppress(ValueError):  # an attribute with thousands of digits; the handler must not fail for it
            if len(data := pack(span)) <= LARGEST:
                self.send(data)

    def _count(self, span: ReadableSpan) -> int:
        """Returns how many spans the handler has made, with this one, which is kept with its attempt."""
        recorder = of_current_task()
        if recorder is None or recorder.spans is None or recorder.ended:
            self._strays += 1  # a thread that an earlier task left behind made it
            return self._strays
        recorder.spans.add(_summary(span, recorder.spans.began_ns))
        return recorder.spans.count


def _summary(span: ReadableSpan, began_ns: int) -> dict[str, Any]:
    began, ended = span.start_time or 0, span.end_time or 0
    after_us = max(0, began - began_ns) // 1000
    words: dict[str, Any] = {"name": _description(span), "after_us": after_us, "us": (ended - began) // 1000}
    return words if span.status.is_ok else {**words, "error": True}


def _description(span: ReadableSpan) -> str:
    """Returns a span in one line; addresses without their query, which may hold secrets."""
    try:
        url = urlsplit(str((span.attributes or {}).get("url.full", "")))
    except ValueError:  # not an address; the handler must not fail for it
        return str(span.name)[:_LONGEST_NAME]
    words = f"{span.name} {url.hostname}{url.path}" if url.hostname else str(span.name)
    return words[:_LONGEST_NAME]


def pack(span: ReadableSpan) -> bytes:
    """Returns everything about a span except its resource, in JSON; characters outside UTF-8 are replaced."""
    scope = span.instrumentation_scope
    fields = (
        str(span.name),
        _ids(span.context),
        _ids(span.parent),
        dict(span.attributes or {}),
        [(event.name, dict(event.attributes or {}), event.timestamp) for event in span.events],
        [(_ids(link.context), dict(link.attributes or {})) for link in span.links],
        span.kind.value,
        (span.status.status_code.value, span.status.description),
        (span.start_time, span.end_time),
        (scope.name, scope.version, scope.schema_url) if scope else None,
    )
    return json.dumps(fields, default=str, ensure_ascii=False).encode(errors="replace")


def unpack(data: bytes, resource: Resource) -> ReadableSpan:
    """Returns the span that was packed, with the resource of this process."""
    name, own, parent, attributes, events, links, kind, status, (started, ended), scope = json.loads(data)
    return ReadableSpan(
        name,
        _context(own),
        _context(parent) if parent else None,
        resource,
        attributes,
        [Event(*event) for event in events],
        [Link(_context(ids), about) for ids, about in links],
        SpanKind(kind),
        status=Status(StatusCode(status[0]), status[1]),
        start_time=started,
        end_time=ended,
        instrumentation_scope=InstrumentationScope(*scope) if scope else None,
    )


def _ids(context: SpanContext | None) -> tuple[int, int, int] | None:
    return (context.trace_id, context.span_id, int(context.trace_flags)) if context else None


def _context(ids: Sequence[int]) -> SpanContext:
    trace_id, span_id, flags = ids
    return SpanContext(trace_id, span_id, is_remote=True, trace_flags=TraceFlags(flags))
