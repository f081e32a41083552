"""Logs, metrics and traces."""

from __future__ import annotations

from typing import Literal

from firmq.shared.config.groups.group import Group, at
from firmq.shared.config.values import Host, LogFormat, LogLevel, Port, WebAddresses, WebUrl


class ObservabilitySettings(Group):
    """Logs, metrics and traces."""

    app_version: str = at(
        "app_version",
        "",
        "Version of the application, such as a git revision: shown with workers and attempts, in log lines and traces; "
        "empty: none.",
        pattern=r"^[A-Za-z0-9._+:/@-]{0,64}$",
    )
    log_level: LogLevel = at("log.level", "INFO", "DEBUG, INFO, WARNING or ERROR.")
    log_format: LogFormat = at("log.format", "auto", "json, text, or auto: text on a terminal, else json.")
    log_export: Literal["", "otlp"] = at(
        "log.export",
        "",
        "otlp: log lines are also sent to the collector of OTEL_EXPORTER_OTLP_ENDPOINT (or its variant for logs).",
    )
    jaeger_host: Host = at(
        "tracing.jaeger_host", "", "Host of Jaeger; empty: no traces unless OTEL_* variables are set."
    )
    prometheus_url: WebUrl = at(
        "prometheus_url",
        "",
        "Address of Prometheus, which the doctor queries for its targets; empty: not queried.",
        pattern=r"^(https?://\S+)?$",
    )
    jaeger_port: Port = at(
        "tracing.jaeger_port", 4318, "OTLP port of Jaeger; 6831, the old port of its agent, means 4318 (gRPC: 4317)."
    )
    trace_locally: bool = at(
        "tracing.locally",
        False,
        "Traces tasks for the dashboard even without a collector; without one, at most ten per second.",
    )
    metrics_sources: WebAddresses = at(
        "gateway.metrics_sources",
        (),
        "Addresses of other parts, host:port, whose metrics the gateway's /metrics includes; for a name with several "
        "addresses, all of them.",
    )
