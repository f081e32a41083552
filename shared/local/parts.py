"""The parts of the product as services: command, port and grace period of each."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta

from shared.config.settings import Settings
from shared.errors import SettingsError
from shared.local.ports import LOOPBACK, free_port, port_problem
from shared.local.supervisor import Service

# Requests in flight may finish, long polls need not.
_GRACE_OF_INGRESS = timedelta(seconds=15)
# Above a worker's own limit, so that the worker itself ends slow tasks and gives them back.
_MARGIN = timedelta(seconds=5)


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One part of the product; `ingress` marks parts that accept external requests."""

    name: str
    module: str
    port: int
    port_variable: str
    ingress: bool


def parts_of(settings: Settings) -> list[Part]:
    """Returns the parts with their ports."""
    return [
        _part("gateway", "gateway", settings.gateway_port, "GATEWAY_PORT", ingress=True),
        _part("dashboard", "dashboard", settings.dashboard_port, "DASHBOARD_PORT", ingress=True),
        _part("worker", "worker", settings.worker_metrics_port, "WORKER_METRICS_PORT", ingress=False),
        _part(
            "housekeeper",
            "worker.housekeeping",
            settings.housekeeper_metrics_port,
            "HOUSEKEEPER_METRICS_PORT",
            ingress=False,
        ),
    ]


def check_ports(parts: Sequence[Part], host: str) -> None:
    """Raises SettingsError, which names every unavailable port, its part and the setting to change."""
    problems = [problem for part in parts if (problem := _problem(part, parts, host))]
    if problems:
        raise SettingsError("\n".join(problems))


def service_of(part: Part, settings: Settings, env: Mapping[str, str]) -> Service:
    """Returns the service that runs a part."""
    return Service(
        name=part.name,
        argv=(sys.executable, "-m", part.module),
        env=env,
        ready_url=f"{origin(part, settings)}/health/ready",
        grace=_grace(part, settings),
    )


def _grace(part: Part, settings: Settings) -> timedelta:
    if part.ingress:
        return _GRACE_OF_INGRESS + timedelta(seconds=settings.shutdown_delay)
    return timedelta(seconds=settings.drain_grace) + _MARGIN


def origin(part: Part, settings: Settings) -> str:
    """Returns the base URL of a part, reachable from this machine."""
    return f"http://{_reachable(settings.bind_host)}:{part.port}"


def _part(name: str, module: str, port: int, port_variable: str, *, ingress: bool) -> Part:
    """Returns a part; port 0 is replaced by a free one, so that the banner can show it."""
    return Part(name=name, module=module, port=port or free_port(), port_variable=port_variable, ingress=ingress)


def _problem(part: Part, parts: Sequence[Part], host: str) -> str | None:
    change = f"set {part.port_variable} to another port"
    rivals = [other.name for other in parts if other.port == part.port and other is not part]
    if rivals:
        return f"port {part.port} is used by {part.name} and by {' and '.join(rivals)}: {change}"
    if problem := port_problem(host, part.port):
        return f"port {part.port} of {part.name} {problem}: {change}"
    return None


def _reachable(host: str) -> str:
    """Returns an address that reaches a server listening on `host`."""
    if host in ("", "0.0.0.0"):  # noqa: S104 - compared, not listened on
        return LOOPBACK
    if host == "::":
        return "[::1]"
    return f"[{host}]" if ":" in host else host
