"""Spans on their way from an executor to its worker. Imported only where tracing is on.

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

from worker.executors.log_capture import of_current_task

if TYPE_CHECKING:
    from opentelemetry.sdk.resources import Resource

    from worker.executors.recorder import Recorder

MOST_KEPT = 32
"""Spans of a handler that are kept with its attempt; with their names at most 4 kB."""
MOST_SENT = 1000
"""Spans of a handler that are sent for one attempt: a flood of them would keep the worker from its tasks."""
LARGEST = 1 << 20
"""Bytes of the largest span that is sent: a worker ends an executor whose frame is too large for the pipe."""
_LONGEST_NAME = 100
_OURS = "taskqueue"


class SpanWriter(SpanProcessor):
    """Takes ended spans in an executor: sends each to the worker, and summarizes those of a handler for its record."""

    def __init__(self, send: Callable[[bytes], None]) -> None:
        self.send = send
        self.start(None)

    def start(self, recorder: Recorder | None) -> None:
        """Begins another attempt; None after it."""
        self.recorder = recorder
        self.began_ns = time.time_ns()
        self.kept: list[dict[str, Any]] = []
        self.left_out = self.of_handlers = 0

    def on_end(self, span: ReadableSpan) -> None:
        if span.instrumentation_scope is None or span.instrumentation_scope.name != _OURS:
            self._keep(span)
            self.of_handlers += 1
            if self.of_handlers > MOST_SENT:
                return
        with suppress(ValueError):  # an attribute with thousands of digits; the handler must not fail for it
            if len(data := pack(span)) <= LARGEST:
                self.send(data)

    def _keep(self, span: ReadableSpan) -> None:
        if self.recorder is None or of_current_task() is not self.recorder:
            return  # a thread that an earlier task left behind made it
        if len(self.kept) < MOST_KEPT:
            self.kept.append(_summary(span, self.began_ns))
        else:
            self.left_out += 1

    def summary(self) -> dict[str, Any]:
        """Returns the handler's spans for the record of the attempt."""
        return {"spans": self.kept, "spans_left_out": self.left_out} if self.kept else {}


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
    """Returns everything about a span except its resource, in JSON; what UTF-8 cannot hold is replaced."""
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
