"""Tracing: span names, and how the trace of a request travels with its task.

Off unless there is somebody to send spans to: `OTEL_EXPORTER_OTLP_ENDPOINT` (or its traces variant), or `JAEGER_HOST`,
which stands for OTLP over HTTP on that host. Sampling is OpenTelemetry's own (`OTEL_TRACES_SAMPLER`, with its argument)
and is decided once, where a task is submitted; everybody later follows the flag that travels in the task's meta as W3C
`traceparent`, and a task without one is not traced. A collector that is away costs nothing but its spans: they wait in
bounded memory, in a thread of their own, and are dropped.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from opentelemetry import trace
from opentelemetry.trace import SpanKind
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from shared.settings import Settings

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.sdk.trace import TracerProvider

TRACEPARENT = "traceparent"
_ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_LEGACY_AGENT_PORT = 6831
_OTLP_HTTP_PORT = 4318
_SAMPLED = frozenset("13579bdf")
"""Last digits of a `traceparent` whose lowest flag is set."""
_PROPAGATOR = TraceContextTextMapPropagator()
_EXPORT_LOGGERS = (
    "opentelemetry.exporter.otlp.proto.http.trace_exporter",
    "opentelemetry.sdk._shared_internal",
    "opentelemetry.sdk.trace.export",
)
"""A filter holds for the very logger that it is put on, so each is named."""


class Tracing:
    """The tracer of one process, or a stand-in that does nothing when tracing is off."""

    def __init__(self, part: str, settings: Settings) -> None:
        endpoint = traces_endpoint(settings)
        self.provider = None if endpoint is None else _provider(part, endpoint)
        self.tracer = self.provider.get_tracer("taskqueue") if self.provider else trace.NoOpTracer()

    @property
    def on(self) -> bool:
        return self.provider is not None

    @contextmanager
    def sending(self, task_type: str, traceparent: str | None) -> Iterator[str | None]:
        """A span around the submission of a task; gives the `traceparent` that is to travel with the task."""
        if not self.on:
            yield traceparent
            return
        with self.tracer.start_as_current_span(
            f"send {task_type}",
            context=context_from({TRACEPARENT: traceparent or ""}),
            kind=SpanKind.PRODUCER,
            attributes={"messaging.system": "taskqueue", "messaging.operation.type": "send"},
        ):
            yield meta_of().get(TRACEPARENT)

    def stop(self, patience: float = 1.5) -> None:
        """Sends what is left, but waits no longer than `patience` seconds for a collector that is away."""
        if self.provider is None:
            return
        # The exporter's own shutdown may take several seconds; a daemon thread is left behind then.
        thread = threading.Thread(target=self.provider.shutdown, daemon=True)
        thread.start()
        thread.join(patience)


def traces_endpoint(settings: Settings) -> str | None:
    """Where spans go, as OTLP over HTTP, or None for nowhere; "" leaves it to OpenTelemetry's own variables."""
    if any(os.environ.get(name) for name in _ENDPOINTS):
        return ""
    if settings.jaeger_host:
        # Jaeger's agent protocol is gone from Jaeger and from Python: its old port means "on that host".
        port = _OTLP_HTTP_PORT if settings.jaeger_port == _LEGACY_AGENT_PORT else settings.jaeger_port
        return f"http://{settings.jaeger_host}:{port}/v1/traces"
    return None


def context_from(meta: Mapping[str, str]) -> Context:
    """The context that a task's meta carries."""
    return _PROPAGATOR.extract(dict(meta))


def meta_of(context: Context | None = None) -> dict[str, str]:
    """What a task's meta has to carry so that its attempts join the trace of `context` (default: the current one)."""
    carrier: dict[str, str] = {}
    _PROPAGATOR.inject(carrier, context)
    return carrier


def is_sampled(traceparent: str | None) -> bool:
    """Whether the trace that a `traceparent` names is recorded; read without parsing the rest."""
    return traceparent is not None and traceparent[-1:] in _SAMPLED


def trace_id(traceparent: str | None) -> str | None:
    """The trace's id as 32 hexadecimal digits."""
    return traceparent[3:35] if traceparent and len(traceparent) >= 55 else None


def _provider(part: str, endpoint: str) -> TracerProvider:
    # Imported here: whoever does not trace does not pay for it, in memory or start-up time.
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    quiet = OnceAMinute()
    for name in _EXPORT_LOGGERS:
        logging.getLogger(name).addFilter(quiet)
    provider = TracerProvider(
        resource=Resource.create({"service.name": f"taskqueue-{part}", "service.namespace": "taskqueue"}),
        shutdown_on_exit=False,
    )
    exporter = OTLPSpanExporter(endpoint=endpoint or None, timeout=5)
    provider.add_span_processor(BatchSpanProcessor(exporter, max_queue_size=2048, schedule_delay_millis=1000))
    return provider


class OnceAMinute(logging.Filter):
    """Lets one line a minute through: a collector that is away is worth saying, not worth flooding the log."""

    last = float("-inf")

    def filter(self, record: logging.LogRecord) -> bool:
        if record.created - self.last < 60:
            return False
        self.last = record.created
        return True
