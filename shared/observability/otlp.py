"""Configures OpenTelemetry's SDK. Imported only by processes that trace.

An unavailable collector costs only spans: they wait in bounded memory, are sent by a separate thread, and are dropped;
the log has at most one line about it per minute.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ALWAYS_ON, ParentBased, Sampler, SamplingResult

if TYPE_CHECKING:
    from firmq.shared.config.collector import Destination

log = logging.getLogger("firmq.shared.observability.tracing")

QUEUE = 2048
"""Maximum spans waiting to be sent: about 4 MB."""
DELAY_MS = 500
TRACES, LOG_LINES = "traces", "exported log lines"
LOCAL_RATE = 10
"""Maximum traces per second that each process begins without a collector and without a configured sampler."""


class ChosenIds(RandomIdGenerator):
    """Generates random ids, except for spans whose id is chosen."""

    def __init__(self) -> None:
        self._next = threading.local()

    @contextmanager
    def choose(self, span_id: int) -> Iterator[None]:
        """Sets the id of spans that this thread begins inside the context."""
        self._next.span_id = span_id
        try:
            yield
        finally:
            self._next.span_id = None

    def generate_span_id(self) -> int:
        return getattr(self._next, "span_id", None) or super().generate_span_id()


class PerSecond(Sampler):
    """Samples at most `most` new traces per second."""

    def __init__(self, most: int) -> None:
        self.begun: deque[float] = deque(maxlen=most)
        self.lock = threading.Lock()

    def should_sample(self, *about: Any, **more: Any) -> SamplingResult:
        now = time.monotonic()
        with self.lock:
            full = len(self.begun) == self.begun.maxlen and now - self.begun[0] < 1
            if not full:
                self.begun.append(now)
        return (ALWAYS_OFF if full else ALWAYS_ON).should_sample(*about, **more)

    def get_description(self) -> str:
        return f"PerSecond({self.begun.maxlen})"


class DecidedBefore(Sampler):
    """Follows a decision made before the span begins, else the inner sampler."""

    decided: ContextVar[bool] = ContextVar("trace_decided", default=False)

    def __init__(self, inner: Sampler) -> None:
        self.inner = inner

    def should_sample(self, *about: Any, **more: Any) -> SamplingResult:
        return (ALWAYS_ON if self.decided.get() else self.inner).should_sample(*about, **more)

    def get_description(self) -> str:
        return f"DecidedBefore({self.inner.get_description()})"


def sampler_of(destination: Destination | None, only_continues: bool) -> Sampler | None:
    """Returns the sampler of a process; None for the one that OpenTelemetry's own variables name."""
    if only_continues:
        return ParentBased(ALWAYS_OFF)
    if destination is None and not os.environ.get("OTEL_TRACES_SAMPLER"):
        return ParentBased(PerSecond(LOCAL_RATE))
    return None


def resource_of(part: str, instance: str, app_version: str) -> Resource:
    """Returns the description of a process for the collector."""
    return Resource.create(
        {
            "service.name": os.environ.get("OTEL_SERVICE_NAME") or f"firmq-{part}",
            "service.namespace": "firmq",
            **({"service.instance.id": instance} if instance else {}),
            **({"service.version": app_version} if app_version else {}),
        }
    )


def provider_of(part: str, instance: str, app_version: str, ids: ChosenIds, sampler: Sampler | None) -> TracerProvider:
    """Returns the provider of a process, without a processor for its spans."""
    resource = resource_of(part, instance, app_version)
    provider = TracerProvider(sampler, resource, shutdown_on_exit=False, id_generator=ids)
    provider.sampler = DecidedBefore(provider.sampler)
    return provider


def processor_to(destination: Destination) -> SpanProcessor:
    """Returns a processor that sends spans to the destination, in batches and in a thread of its own."""
    listen_to_complaints()
    return BatchSpanProcessor(
        destination.exporter(),
        max_queue_size=_number("OTEL_BSP_MAX_QUEUE_SIZE", QUEUE),
        schedule_delay_millis=_number("OTEL_BSP_SCHEDULE_DELAY", DELAY_MS),
    )


class OnceAMinute(logging.Handler):
    """Passes on at most one warning of OpenTelemetry per minute, so that an unavailable collector does not flood the
    log. `what` names the lost data: traces or exported log lines."""

    def __init__(self, what: str) -> None:
        super().__init__(logging.WARNING)
        self.what = what
        self.addFilter(lambda record: ("_log_exporter" in record.name) is (what == LOG_LINES))
        self.last = float("-inf")
        self.kept_back = 0

    def emit(self, record: logging.LogRecord) -> None:
        if record.created - self.last < 60:
            self.kept_back += 1
            return
        self.last = record.created
        more = f" ({self.kept_back} more warnings since the last line)" if self.kept_back else ""
        self.kept_back = 0
        log.warning("only %s are lost: %s%s", self.what, record.getMessage()[:300], more)


def listen_to_complaints() -> None:
    """Logs the SDK's messages about an unavailable collector, once a minute."""
    otel: Any = logging.getLogger("opentelemetry")
    otel.propagate = False
    if not any(isinstance(each, OnceAMinute) for each in otel.handlers):
        otel.addHandler(OnceAMinute(TRACES))
        otel.addHandler(OnceAMinute(LOG_LINES))


def shut_down(shutdown: Callable[[], object], patience: float) -> None:
    """Calls the shutdown of a provider, which sends the rest, and returns after `patience` seconds at the latest.

    With a collector that does not answer, the SDK's own shutdown takes up to half a minute: a daemon thread runs it.
    """
    thread = threading.Thread(target=shutdown, daemon=True)
    thread.start()
    thread.join(patience)


def _number(name: str, otherwise: int) -> int:
    try:
        return int(os.environ.get(name, "") or otherwise)
    except ValueError:
        return otherwise
