"""Tracing: span names, and how the trace of a request travels with its task.

Off unless there is somebody to send spans to: `OTEL_EXPORTER_OTLP_ENDPOINT` (or its traces variant), or `JAEGER_HOST`,
which stands for OTLP over HTTP on that host. Sampling is OpenTelemetry's own (`OTEL_TRACES_SAMPLER`,
`OTEL_TRACES_SAMPLER_ARG`) and is decided once, where the trace begins; everybody later follows the flag that travels in
the task's meta as W3C `traceparent`. A collector that is away costs nothing but its spans: they wait in bounded memory,
in a thread of their own, and are dropped.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING

from opentelemetry import trace
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from shared.settings import Settings

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.sdk.trace import TracerProvider

TRACEPARENT = "traceparent"
_ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_LEGACY_AGENT_PORT = 6831
_OTLP_HTTP_PORT = 4318
_PROPAGATOR = TraceContextTextMapPropagator()


class Tracing:
    """The tracer of one process, or a stand-in that does nothing when tracing is off."""

    def __init__(self, part: str, settings: Settings) -> None:
        endpoint = traces_endpoint(settings)
        self.provider = _provider(part, endpoint) if endpoint else None
        self.tracer = self.provider.get_tracer("taskqueue") if self.provider else trace.NoOpTracer()

    @property
    def on(self) -> bool:
        return self.provider is not None

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
    return bool(traceparent) and traceparent is not None and traceparent[-2:] != "00"


def trace_id(traceparent: str | None) -> str | None:
    """The trace's id as 32 hexadecimal digits."""
    return traceparent[3:35] if traceparent and len(traceparent) >= 55 else None


def _provider(part: str, endpoint: str) -> TracerProvider:
    # Imported here: whoever does not trace does not pay for it, in memory or start-up time.
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    logging.getLogger("opentelemetry").addFilter(_once_a_minute())
    provider = TracerProvider(
        resource=Resource.create({"service.name": f"taskqueue-{part}", "service.namespace": "taskqueue"}),
        shutdown_on_exit=False,
    )
    exporter = OTLPSpanExporter(endpoint=endpoint or None, timeout=5)
    provider.add_span_processor(BatchSpanProcessor(exporter, max_queue_size=2048, schedule_delay_millis=1000))
    return provider


def _once_a_minute() -> logging.Filter:
    """Lets one line a minute through: a collector that is away is worth saying, not worth flooding the log."""

    class OnceAMinute(logging.Filter):
        last = float("-inf")

        def filter(self, record: logging.LogRecord) -> bool:
            if record.created - self.last < 60:
                return False
            self.last = record.created
            return True

    return OnceAMinute()
