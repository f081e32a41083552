"""Sends log lines by OTLP, beside those on standard error. Imported only where LOG_EXPORT enables it.

An unavailable collector costs only lines: they wait in bounded memory, are sent by a separate thread, and are dropped.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

from opentelemetry._logs import LogRecord, SeverityNumber
from opentelemetry.context import Context
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import BatchLogRecordProcessor
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags, set_span_in_context

from firmq.shared.config.collector import log_exporter
from firmq.shared.observability.otlp import DELAY_MS, QUEUE, listen_to_complaints, resource_of, shut_down

STOP_SECONDS = 1.5
"""Seconds for which an ending process waits until its last lines are sent."""
_SENDERS = ("opentelemetry", "urllib3", "grpc")
"""Loggers of the export itself: a line about sending would cause another one."""
_SEVERITIES = (
    (logging.CRITICAL, SeverityNumber.FATAL),
    (logging.ERROR, SeverityNumber.ERROR),
    (logging.WARNING, SeverityNumber.WARN),
    (logging.INFO, SeverityNumber.INFO),
)


class OTLPHandler(logging.Handler):
    """Sends each record with its fields as attributes, and in the trace that its fields name."""

    def __init__(
        self, part: str, instance: str, app_version: str, fields: Callable[[logging.LogRecord], Mapping[str, object]]
    ) -> None:
        super().__init__()
        self.fields = fields
        listen_to_complaints()
        self.provider = LoggerProvider(resource_of(part, instance, app_version), shutdown_on_exit=False)
        self.provider.add_log_record_processor(
            BatchLogRecordProcessor(log_exporter(), schedule_delay_millis=DELAY_MS, max_queue_size=QUEUE)
        )

    def emit(self, record: logging.LogRecord) -> None:
        if record.name.startswith(_SENDERS):
            return
        try:
            self.provider.get_logger(record.name).emit(self._translated(record))
        except Exception:
            self.handleError(record)

    def close(self) -> None:
        """Sends remaining lines, but waits at most STOP_SECONDS for the collector."""
        shut_down(self.provider.shutdown, STOP_SECONDS)
        super().close()

    def _translated(self, record: logging.LogRecord) -> LogRecord:
        fields = {name: _plain(value) for name, value in self.fields(record).items()}
        if record.exc_info:
            fields["exception.stacktrace"] = logging.Formatter().formatException(record.exc_info)
        context = _context(fields.pop("trace_id", None), fields.pop("span_id", None))
        severity = next((number for level, number in _SEVERITIES if record.levelno >= level), SeverityNumber.DEBUG)
        return LogRecord(
            timestamp=int(record.created * 1e9),
            severity_text=record.levelname,
            severity_number=severity,
            body=record.getMessage(),
            attributes=fields,
            context=context,
        )


def _plain(value: object) -> str | int | float | bool:
    return value if isinstance(value, str | int | float | bool) else str(value)


def _context(trace_id: object, span_id: object) -> Context | None:
    """Returns the context of a line about a traced task; None for another line."""
    try:
        span = SpanContext(int(str(trace_id), 16), int(str(span_id or "1"), 16), True, TraceFlags(TraceFlags.SAMPLED))
    except ValueError:
        return None
    return set_span_in_context(NonRecordingSpan(span))
