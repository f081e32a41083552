"""What stands around the system: settings, Jaeger, Prometheus."""

from __future__ import annotations

import json
import socket
import urllib.request
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from shared.doctor.findings import Finding, doubtful, fine, wrong
from shared.errors import SettingsError
from shared.http.bind import is_loopback
from shared.observability.collector import address_of_traces
from shared.redis.address import read_address, without_password

if TYPE_CHECKING:
    from shared.config.settings import Settings

_PATIENCE = 1.0
_OTLP_PORT = 4318


def check_settings(settings: Settings) -> list[Finding]:
    """Settings that are legal and still worth a second thought."""
    findings = [*_doors(settings), *_way_to_redis(settings), *_times(settings)]
    return findings or [fine("settings", "nothing to remark")]


def _doors(settings: Settings) -> list[Finding]:
    if is_loopback(settings.bind_host) or not settings.allow_anonymous:
        return []
    return [
        doubtful(
            "settings",
            f"whoever reaches {settings.bind_host} is let in (ALLOW_ANONYMOUS=true)",
            "set API_KEYS, DASHBOARD_USERS and ALLOW_ANONYMOUS=false, or keep its ports on a network that you trust",
        )
    ]


def _way_to_redis(settings: Settings) -> list[Finding]:
    address = read_address(settings.store_url)
    parts = urlsplit(address.url)
    hosts = [host for host, _ in address.sentinels] or [parts.hostname or "127.0.0.1"]
    if parts.scheme == "unix" or all(map(is_loopback, hosts)):
        return []
    shown, findings = without_password(settings.store_url), []
    if not parts.password:
        findings.append(wrong("settings", f"{shown} asks for no password", "set REDIS_PASSWORD, there and here"))
    if not address.by_tls:
        findings.append(
            doubtful(
                "settings",
                f"tasks travel to {shown} in the clear",
                "use rediss:// unless nobody else is on that network",
            )
        )
    return findings


def _times(settings: Settings) -> list[Finding]:
    if settings.drain_grace >= settings.task_timeout:
        return []
    if settings.drain_grace < 5:
        return [
            doubtful(
                "settings",
                f"DRAIN_GRACE={settings.drain_grace:g}: a stopping worker gives back what runs longer, to run again",
                "set it to what most tasks need, and the orchestrator's grace period above it",
            )
        ]
    return []


def check_jaeger(settings: Settings) -> list[Finding]:
    """Whether somebody listens for the traces; nobody is asked when there are none."""
    try:
        where = address_of_traces(settings)
    except SettingsError as error:
        return [wrong("tracing", str(error), "the parts do not start with it")]
    if where is None:
        return [fine("tracing", "off: neither JAEGER_HOST nor OTEL_EXPORTER_OTLP_ENDPOINT is set")]
    parts = urlsplit(where if "//" in where else f"//{where}")
    try:
        socket.create_connection((parts.hostname or "", parts.port or _OTLP_PORT), _PATIENCE).close()
    except OSError as error:
        return [doubtful("tracing", f"nobody takes traces at {where}: {error}", "start the collector, or unset it")]
    return [fine("tracing", f"somebody listens for traces at {where}")]


def check_prometheus(settings: Settings) -> list[Finding]:
    """Whether Prometheus lives and reaches all that it is to watch."""
    url = settings.prometheus_url.rstrip("/")
    if not url:
        return [fine("prometheus", "not asked: PROMETHEUS_URL is not set")]
    try:
        with urllib.request.urlopen(f"{url}/api/v1/targets?state=active", timeout=_PATIENCE) as answer:  # noqa: S310
            targets = json.load(answer)["data"]["activeTargets"]
            down = [f"{each['labels'].get('job')} {each['scrapeUrl']}" for each in targets if each["health"] == "down"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        return [doubtful("prometheus", f"{_place(url)} does not answer as Prometheus: {error}", "start it")]
    if down:
        return [doubtful("prometheus", f"it does not reach {', '.join(down)}", "start these, or correct its targets")]
    return [fine("prometheus", f"it reaches all of its {len(targets)} targets")]


def _place(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.hostname}:{parts.port}" if parts.port else str(parts.hostname)
