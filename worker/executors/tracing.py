"""The spans of attempts: created in the executor, forwarded by its worker.

An executor has no connection to a collector. It passes each span through its pipe as soon as it has ended, so a crash
loses only open ones, and the worker, which alone sends spans, reports the attempt that died.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from opentelemetry import context, trace
from opentelemetry.trace import Link, Span

from shared.domain.traceparent import REPLAY, REPLAY_AFTER, TRACEPARENT, is_sampled
from shared.observability.tracing import Subject, Tracing, link_to
from worker.executors.log_capture import of_current_task
from worker.executors.span_frames import pack, unpack

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan

    from worker.engine.claimed_task import ClaimedTask
    from worker.engine.redis_session import Report
    from worker.executors.ipc import Assignment, EndedAttempt
    from worker.executors.recorder import Recorder

MOST_KEPT = 32
"""Spans of a handler that are kept with its attempt; with their names at most 4 kB."""
_LONGEST_NAME = 100


class AttemptSpans:
    """The executor's side: one attempt at a time."""

    def __init__(self, tracing: Tracing) -> None:
        self.tracing = tracing
        self.span: Span | None = None
        self._subject = Subject(id="", type="", queue="")
        self._token: Any = None

    def begin(self, assignment: Assignment, meta: Mapping[str, Any], waited_us: int) -> None:
        """Begins the attempt's span; does nothing unless its trace is sampled."""
        traceparent = meta.get(TRACEPARENT)
        if not self.tracing.on or not isinstance(traceparent, str) or not is_sampled(traceparent):
            return
        self._subject = subject = Subject(
            id=assignment.id.decode(),
            type=assignment.type.decode(errors="replace"),
            queue=assignment.queue.decode(errors="replace"),
            attempt=assignment.attempt,
        )
        waited_ns = max(0, waited_us) * 1000 if assignment.enqueued_us else 0
        cause = _replay_link(meta, assignment.attempt)
        self.span = self.tracing.attempt(subject, traceparent, time.time_ns(), waited_ns, cause)
        self._token = context.attach(trace.set_span_in_context(self.span))

    def end(self, ended: EndedAttempt) -> None:
        """Ends the attempt's span."""
        span, self.span = self.span, None
        if span is None:
            return
        context.detach(self._token)
        error = json.loads(ended.record).get("error") if ended.error_type else None
        self.tracing.end_attempt(span, self._subject, ended.outcome, ended.state, error)


class SpanWriter:
    """Takes ended spans: each is sent to the worker, and summarized in the attempt's record."""

    def __init__(self, send: Callable[[tuple[Any, ...]], None], collected: bool) -> None:
        self.send = send
        self.collected = collected
        self.kept: list[dict[str, Any]] = []
        self.left_out = 0
        self.began_ns = 0
        self.recorder: Recorder | None = None

    def start(self, recorder: Recorder) -> None:
        """Begins another attempt."""
        self.recorder = recorder
        self.began_ns = time.time_ns()
        if self.kept or self.left_out:
            self.kept, self.left_out = [], 0

    def on_start(self, span: Span, parent_context: object = None) -> None:
        """Does nothing: only ended spans are reported."""

    def _on_ending(self, span: Span) -> None:
        pass

    def on_end(self, span: ReadableSpan) -> None:
        scope = span.instrumentation_scope
        if (scope is None or scope.name != "taskqueue") and of_current_task() is self.recorder:
            self._keep(span)
        if self.collected:
            self.send(pack(span))

    def _keep(self, span: ReadableSpan) -> None:
        if len(self.kept) >= MOST_KEPT:
            self.left_out += 1
            return
        began, ended = span.start_time or 0, span.end_time or 0
        after_us = max(0, began - self.began_ns) // 1000
        words: dict[str, Any] = {"name": _description(span), "after_us": after_us, "us": (ended - began) // 1000}
        if not span.status.is_ok:
            words["error"] = True
        self.kept.append(words)

    def shutdown(self) -> None:
        pass

    def force_flush(self, timeout_millis: int = 30000) -> bool:
        return True


class SpanForwarder:
    """The worker's side: forwards spans of executors, and reports attempts that died with their executor."""

    def __init__(self, tracing: Tracing) -> None:
        self.tracing = tracing

    def forward(self, frame: list[Any]) -> None:
        """Forwards a span from an executor."""
        if self.tracing.provider is not None:
            self.tracing.take(unpack(frame, self.tracing.provider.resource))

    def crashed(self, claimed: ClaimedTask, began_at: float, report: Report) -> None:
        """Reports an attempt whose executor died or was killed."""
        if not self.tracing.on or not (traceparent := claimed.traceparent) or not is_sampled(traceparent):
            return
        subject = Subject(
            id=claimed.id.decode(), type=claimed.name, queue=claimed.queue.decode(), attempt=claimed.attempt
        )
        now = time.time_ns()
        began = now - int((time.monotonic() - began_at) * 1_000_000_000)
        span = self.tracing.crashed_attempt(subject, traceparent, began, _replay_link(claimed.about, claimed.attempt))
        self.tracing.end_attempt(
            span, subject, report.outcome, report.state, json.loads(report.record).get("error"), now
        )


def _replay_link(meta: Mapping[str, Any], attempt: int) -> Link | None:
    """Returns the link to the span that requeued the task, for the first attempt after it."""
    if meta.get(REPLAY_AFTER) != attempt - 1:
        return None
    replay = meta.get(REPLAY)
    return link_to(replay, "replay") if isinstance(replay, str) else None


def _description(span: ReadableSpan) -> str:
    """Returns a span in one line; addresses without their query, which may hold secrets."""
    about = span.attributes or {}
    url = urlsplit(str(about.get("url.full", "")))
    words = f"{span.name} {url.hostname}{url.path}" if url.hostname else span.name
    return words[:_LONGEST_NAME]
