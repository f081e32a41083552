"""Determines the collector of spans from OpenTelemetry's own variables or from `JAEGER_HOST`."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING

from firmq.shared.domain.url import in_url
from firmq.shared.errors import SettingsError

if TYPE_CHECKING:
    from opentelemetry.sdk._logs.export import LogRecordExporter
    from opentelemetry.sdk.trace.export import SpanExporter

    from firmq.shared.config.settings import Settings

log = logging.getLogger(__name__)

EXPORT_TIMEOUT = 5.0
_ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_PROTOCOLS = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
_LOG_ENDPOINTS = ("OTEL_EXPORTER_OTLP_LOGS_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_LOG_PROTOCOLS = ("OTEL_EXPORTER_OTLP_LOGS_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
_LEGACY_AGENT_PORT, _OVER_GRPC, _OVER_HTTP = 6831, 4317, 4318


@dataclass(frozen=True, slots=True)
class Destination:
    """A collector of spans. Without `endpoint`, OpenTelemetry's own variables name it."""

    endpoint: str | None
    protocol: str

    def exporter(self) -> SpanExporter:
        """Returns an exporter to this collector."""
        if self.protocol == "grpc":
            from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter as OverGrpc

            return OverGrpc(endpoint=self.endpoint, timeout=EXPORT_TIMEOUT)
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter as OverHttp

        return OverHttp(endpoint=self.endpoint, timeout=EXPORT_TIMEOUT)


def destination_of(settings: Settings) -> Destination | None:
    """Returns the collector of spans, or None. Raises SettingsError when the protocol is unknown or not installed."""
    named = any(os.environ.get(name) for name in _ENDPOINTS)
    if os.environ.get("OTEL_SDK_DISABLED", "").lower() == "true" or not (named or settings.jaeger_host):
        return None
    protocol = _protocol(settings, named)
    return Destination(None if named else _at_jaeger(settings, protocol), protocol)


def address_of_traces(settings: Settings) -> str | None:
    """Returns the address of the collector without its password, or None. Raises SettingsError."""
    destination = destination_of(settings)
    if destination is None:
        return None
    where = destination.endpoint or next(os.environ[name] for name in _ENDPOINTS if os.environ.get(name))
    return re.sub("//.*@", "//", where)


def announce(settings: Settings) -> None:
    """Logs the address of the collector, and a warning for the old port of Jaeger's agent. Raises SettingsError."""
    destination, where = destination_of(settings), address_of_traces(settings)
    if destination is None:
        return
    if destination.endpoint and settings.jaeger_port == _LEGACY_AGENT_PORT:
        log.warning(
            "JAEGER_PORT=6831 was the port of Jaeger's agent, which no longer exists: traces go by OTLP to %s", where
        )
    else:
        log.info("traces go by OTLP (%s) to %s", destination.protocol, where)


def log_exporter() -> LogRecordExporter:
    """Returns an exporter of log lines to the collector that OpenTelemetry's own variables name."""
    if _log_protocol() == "grpc":
        from opentelemetry.exporter.otlp.proto.grpc._log_exporter import OTLPLogExporter as OverGrpc

        return OverGrpc(timeout=EXPORT_TIMEOUT)
    from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter as OverHttp

    return OverHttp(timeout=EXPORT_TIMEOUT)


def check_log_export(settings: Settings) -> None:
    """Raises SettingsError when log lines are to be exported, and there is no collector or an unknown protocol."""
    if not settings.log_export:
        return
    if not any(os.environ.get(name) for name in _LOG_ENDPOINTS):
        raise SettingsError("LOG_EXPORT=otlp needs a collector: set OTEL_EXPORTER_OTLP_ENDPOINT")
    _log_protocol()


def _log_protocol() -> str:
    return _known(*_chosen(_LOG_PROTOCOLS))


def _chosen(names: Sequence[str]) -> tuple[str, str]:
    """Returns the first of these variables that is set, and its value."""
    return next(((name, os.environ[name]) for name in names if os.environ.get(name)), ("", ""))


def _protocol(settings: Settings, named: bool) -> str:
    variable, chosen = _chosen(_PROTOCOLS)
    if not chosen and not named and settings.jaeger_port == _OVER_GRPC:
        variable, chosen = "JAEGER_PORT", "grpc"
    return _known(variable, chosen)


def _known(variable: str, chosen: str) -> str:
    """Returns the protocol, HTTP by default. Raises SettingsError for one that is unknown or not installed."""
    chosen = chosen or "http/protobuf"
    if chosen not in ("grpc", "http/protobuf"):
        raise SettingsError(f"{variable}: must be grpc or http/protobuf, got {chosen!r}")
    if chosen == "grpc" and not _has_grpc():
        where = "is OTLP over gRPC" if variable == "JAEGER_PORT" else "requests gRPC"
        install = "pip install 'firmq[grpc]'"
        raise SettingsError(f"{variable} {where}, which is not installed: {install}, or use HTTP (port 4318)")
    return chosen


def _has_grpc() -> bool:
    try:
        return find_spec("opentelemetry.exporter.otlp.proto.grpc") is not None and find_spec("grpc") is not None
    except ModuleNotFoundError:
        return False


def _at_jaeger(settings: Settings, protocol: str) -> str:
    """Returns the OTLP endpoint of Jaeger; the port of its agent, which no longer exists, means the default port."""
    usual = _OVER_GRPC if protocol == "grpc" else _OVER_HTTP
    port = usual if settings.jaeger_port in (_LEGACY_AGENT_PORT, _OVER_HTTP) else settings.jaeger_port
    return f"http://{in_url(settings.jaeger_host)}:{port}" + ("" if protocol == "grpc" else "/v1/traces")
