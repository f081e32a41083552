"""The parts of the product as services: what each is started with, where it listens, and when it has to stop."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta

from shared.config.settings import Settings
from shared.errors import SettingsError
from shared.local.ports import LOOPBACK, free_port, port_problem
from shared.local.supervisor import Service

# A request in flight may finish; a long poll need not.
_GRACE_OF_INGRESS = timedelta(seconds=15)
# On top of a worker's own limit, so that it is the worker that ends a slow task, and gives it back.
_MARGIN = timedelta(seconds=5)


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One part of the product; `ingress` is what takes requests from outside."""

    name: str
    module: str
    port: int
    port_variable: str
    ingress: bool


def parts_of(settings: Settings) -> list[Part]:
    """The parts with the ports they will listen on."""
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
    """Raises SettingsError with every port that cannot be had, who wants it, and what to change."""
    problems = [problem for part in parts if (problem := _problem(part, parts, host))]
    if problems:
        raise SettingsError("\n".join(problems))


def service_of(part: Part, settings: Settings, env: Mapping[str, str]) -> Service:
    """How to run a part."""
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
    """Where a part can be asked from here."""
    return f"http://{_reachable(settings.bind_host)}:{part.port}"


def _part(name: str, module: str, port: int, port_variable: str, *, ingress: bool) -> Part:
    """A part; port 0 becomes a free one here, so that the banner can name it."""
    return Part(name=name, module=module, port=port or free_port(), port_variable=port_variable, ingress=ingress)


def _problem(part: Part, parts: Sequence[Part], host: str) -> str | None:
    change = f"set {part.port_variable} to another one"
    rivals = [other.name for other in parts if other.port == part.port and other is not part]
    if rivals:
        return f"port {part.port} is wanted by {part.name} and by {' and '.join(rivals)}: {change}"
    if problem := port_problem(host, part.port):
        return f"port {part.port}, wanted by {part.name}, {problem}: {change}"
    return None


def _reachable(host: str) -> str:
    """The address at which something that listens on `host` can be asked from here."""
    if host in ("", "0.0.0.0"):  # noqa: S104 - compared, not listened on
        return LOOPBACK
    if host == "::":
        return "[::1]"
    return f"[{host}]" if ":" in host else host
