"""Checks the environment: settings, the payload store, the trace collector, Prometheus."""

from __future__ import annotations

import json
import socket
import urllib.request
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from firmq.shared.conditions.findings import Finding, doubtful, fine, wrong
from firmq.shared.config.collector import address_of_traces
from firmq.shared.config.redis_address import read_address, without_password
from firmq.shared.errors import SettingsError
from firmq.shared.http.bind import is_loopback

if TYPE_CHECKING:
    from collections.abc import Iterator

    from firmq.shared.config.settings import Settings

_PATIENCE = 1.0
_OTLP_PORT = 4318


def check_settings(settings: Settings) -> list[Finding]:
    """Returns warnings about valid but risky settings."""
    return [*_risks(settings)] or [fine("settings", "no risky settings")]


def _risks(settings: Settings) -> Iterator[Finding]:
    if settings.allow_anonymous and not is_loopback(settings.bind_host):
        seen = f"no authentication on {settings.bind_host} (ALLOW_ANONYMOUS=true)"
        advice = "set API_KEYS, DASHBOARD_USERS and ALLOW_ANONYMOUS=false, or keep the ports on a trusted network"
        yield doubtful("settings", seen, advice)
    address, shown = read_address(settings.store_url), without_password(settings.store_url)
    parts = urlsplit(address.url)
    hosts = [host for host, _ in (*address.sentinels, *address.nodes)] or [parts.hostname or "127.0.0.1"]
    if parts.scheme != "unix" and not all(map(is_loopback, hosts)):
        if not parts.password:
            advice = "set a password in Redis, and REDIS_PASSWORD here"
            yield wrong("settings", f"{shown} requires no password", advice)
        if not address.by_tls:
            advice = "use rediss://, unless the network is private"
            yield doubtful("settings", f"the connection to {shown} is not encrypted", advice)
    if settings.drain_grace < min(settings.task_timeout, 5):
        seen = f"DRAIN_GRACE={settings.drain_grace:g}: a stopping worker requeues longer tasks"
        advice = "set it to the duration of most tasks, and the orchestrator's grace period above it"
        yield doubtful("settings", seen, advice)


def check_jaeger(settings: Settings) -> list[Finding]:
    """Returns whether the trace collector accepts connections; not checked if tracing is off."""
    try:
        where = address_of_traces(settings)
    except SettingsError as error:
        return [wrong("tracing", str(error), "correct it: the parts do not start with this setting")]
    if where is None:
        return [fine("tracing", "off: neither JAEGER_HOST nor OTEL_EXPORTER_OTLP_ENDPOINT is set")]
    parts = urlsplit(where if "//" in where else f"//{where}")
    try:
        socket.create_connection((parts.hostname or "", parts.port or _OTLP_PORT), _PATIENCE).close()
    except (OSError, ValueError) as error:
        return [doubtful("tracing", f"no trace collector at {where}: {error}", "start the collector, or unset it")]
    return [fine("tracing", f"the trace collector at {where} accepts connections")]


def check_prometheus(settings: Settings) -> list[Finding]:
    """Returns whether Prometheus answers and reaches all its targets."""
    url = settings.prometheus_url.rstrip("/")
    if not url:
        return [fine("prometheus", "not checked: PROMETHEUS_URL is not set")]
    try:
        with urllib.request.urlopen(f"{url}/api/v1/targets?state=active", timeout=_PATIENCE) as answer:  # noqa: S310
            targets = json.load(answer)["data"]["activeTargets"]
            down = [f"{each['labels'].get('job')} {each['scrapeUrl']}" for each in targets if each["health"] == "down"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        seen = f"{_place(url)} does not answer as Prometheus: {error}"
        return [doubtful("prometheus", seen, "start it, or correct PROMETHEUS_URL")]
    if down:
        return [doubtful("prometheus", f"it does not reach {', '.join(down)}", "start these, or correct its targets")]
    return [fine("prometheus", f"it reaches all of its {len(targets)} targets")]


def _place(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.hostname}:{parts.port}" if parts.port else str(parts.hostname)
