"""`make run`: starts Redis, gateway, worker, housekeeper and dashboard, with one log; Ctrl-C stops all of them."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from taskqueue.shared.config.redis_address import completed, without_password
from taskqueue.shared.config.settings import Settings, exit_with, load_or_exit
from taskqueue.shared.errors import IncompatibleSchema, SettingsError, StoreUnavailable, TaskQueueError
from taskqueue.shared.http.bind import LOOPBACK, free_port, port_problem
from taskqueue.shared.local.embedded_redis import EmbeddedRedis, choose_server
from taskqueue.shared.local.supervisor import SUPERVISOR, Service, ServiceLog, Supervisor
from taskqueue.shared.redis.client import connect, translated

_GRACE_OF_INGRESS = 15.0
"""Seconds for requests in flight to finish."""
_MARGIN = 5.0
"""Seconds above a worker's own limit, so that the worker itself ends slow tasks and gives them back."""
_PARTS = (
    ("gateway", "gateway_port", True),
    ("dashboard", "dashboard_port", True),
    ("worker", "worker_metrics_port", False),
    ("housekeeper", "housekeeper_metrics_port", False),
)


@dataclass(frozen=True, slots=True)
class Part:
    """One part of the product; `ingress` marks parts that accept external requests."""

    name: str
    port_variable: str
    ingress: bool
    port: int


def main() -> int:
    """Runs all services until a signal and returns the exit status."""
    signal.signal(signal.SIGTERM, _interrupt)
    settings = load_or_exit()
    try:
        parts = parts_of(settings)
        check_ports(parts, settings.bind_host)
        if settings.redis_url or "redis_host" in settings.model_fields_set:
            reach(settings.store_url)
            _run(parts, settings, settings.store_url, f"{without_password(settings.store_url)} (external)")
        else:
            with _embedded(settings) as server:
                check_format(server, settings.key_prefix)
                _run(parts, settings, server.url, _describe(server, settings.redis_port), server)
    except SettingsError as error:
        exit_with(str(error))
    except TaskQueueError as error:
        print(f"\n{error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


def _interrupt(number: int, frame: FrameType | None) -> None:
    """Handles SIGTERM like Ctrl-C, so that a server that was just started is stopped."""
    raise KeyboardInterrupt


def parts_of(settings: Settings) -> list[Part]:
    """Returns the parts with their ports; port 0 is replaced by a free one, so that the banner can show it."""
    return [
        Part(name, setting.upper(), ingress, getattr(settings, setting) or free_port())
        for name, setting, ingress in _PARTS
    ]


def check_ports(parts: Sequence[Part], host: str) -> None:
    """Raises SettingsError, which names every unavailable port, its part and the setting to change."""
    problems = [
        f"port {part.port} of {part.name} {problem}: set {part.port_variable} to another port"
        for part in parts
        if (problem := port_problem(host, part.port))
    ]
    if problems:
        raise SettingsError("\n".join(problems))


def reach(url: str) -> None:
    """Returns when Redis answers; raises SettingsError soon when it does not."""
    try:
        with translated(), connect(url, timeout=1, retries=0) as client:
            client.ping()
    except (TaskQueueError, ValueError) as error:
        what = f"{' '.join(str(error).split())} ({without_password(url)})"
        raise SettingsError(
            f"{what}: start it, correct REDIS_URL or REDIS_HOST, or unset them to have one embedded"
        ) from error


def check_format(server: EmbeddedRedis, key_prefix: str) -> None:
    """Raises SettingsError if another version wrote the data; else each service would end with this refusal."""
    try:
        with translated(), connect(completed(server.url, key_prefix=key_prefix)) as client:
            client.ping()
    except IncompatibleSchema as error:
        raise SettingsError(f"{error}, or set DATA_DIR to another folder than {server.folder.path}") from error
    except StoreUnavailable:
        pass  # for example a full disk: the services say so, and wait


def _embedded(settings: Settings) -> EmbeddedRedis:
    """Returns a server for the configured port; for any free port if that is the default and in use."""
    port = settings.redis_port
    if problem := port_problem(LOOPBACK, port):
        if "redis_port" in settings.model_fields_set:
            raise SettingsError(f"port {port} of Redis {problem}: set REDIS_PORT to another port")
        port = 0
    folder = Path(os.environ.get("DATA_DIR") or ".data")
    server = choose_server(os.environ.get("REDIS_SERVER_BINARY"))
    return EmbeddedRedis(data_dir=folder, port=port, server=server)


def _describe(server: EmbeddedRedis, wanted: int) -> str:
    moved = f" ({wanted} was in use)" if wanted not in (0, server.port) else ""
    repaired = f"; {server.repaired}" if server.repaired else ""
    return f"{LOOPBACK}:{server.port}{moved}, {server.server}, data in {server.folder.path}{repaired}"


def _run(
    parts: Sequence[Part], settings: Settings, url: str, description: str, server: EmbeddedRedis | None = None
) -> None:
    env = _environment(parts, settings, url)
    # Ingress stops first, so that no new tasks arrive while the workers drain.
    groups = [[_service(part, settings, env) for part in parts if part.ingress is ingress] for ingress in (True, False)]
    log = ServiceLog(sys.stdout, [SUPERVISOR, *(part.name for part in parts)])
    log.line(SUPERVISOR, f"Redis is ready: {description}")
    text = banner(parts, description, needs_key=bool(settings.api_keys or settings.api_keys_file))
    watch = server.revive if server else lambda: None
    Supervisor(groups, log, on_ready=lambda: log.write(text), watch=watch).run()
    log.line(SUPERVISOR, "all services have stopped")


def _service(part: Part, settings: Settings, env: Mapping[str, str]) -> Service:
    return Service(
        name=part.name,
        argv=(sys.executable, "-m", "taskqueue", part.name),
        env=env,
        host=_reachable(settings.bind_host),
        port=part.port,
        grace=_GRACE_OF_INGRESS + settings.shutdown_delay if part.ingress else settings.drain_grace + _MARGIN,
    )


def _environment(parts: Sequence[Part], settings: Settings, url: str) -> Mapping[str, str]:
    """Returns the environment of the services. It holds the URL of Redis, as arguments are visible to all users."""
    # Services write into a pipe, so only this process knows whether the output is a terminal.
    watched = {"LOG_FORMAT": "text"} if sys.stdout.isatty() else {}
    replaced = {"REDIS_URL", "REDIS_HOST", "REDIS_PORT", "REDIS_PASSWORD"}
    host = _reachable(settings.bind_host)
    host = f"[{host}]" if ":" in host else host
    return {
        **watched,
        # One page shows every metric.
        "METRICS_SOURCES": ",".join(f"http://{host}:{part.port}/metrics" for part in parts if part.name != "gateway"),
        # There is no Jaeger here: the dashboard shows the spans.
        "TRACE_LOCALLY": "true",
        # Handlers submit tasks to this gateway.
        "TASKQUEUE_URL": "".join(f"http://{host}:{part.port}" for part in parts if part.name == "gateway"),
        **{name: value for name, value in os.environ.items() if name not in replaced},
        **{part.port_variable: str(part.port) for part in parts},
        "REDIS_URL": url,
        "BIND_HOST": settings.bind_host,
        "PYTHONUNBUFFERED": "1",
    }


def _reachable(host: str) -> str:
    """Returns an address that reaches a server listening on `host`."""
    return {"": LOOPBACK, "0.0.0.0": LOOPBACK, "::": "::1"}.get(host, host)  # noqa: S104  # compared, not listened on


def banner(parts: Sequence[Part], redis: str, needs_key: bool) -> str:
    """Returns the text printed when all services are ready: addresses, and a first command to try."""
    at = {part.name: f"http://localhost:{part.port}" for part in parts}
    key = ' -H "Authorization: Bearer $KEY"' if needs_key else ""
    body = json.dumps({"type": "process", "data": "some text"})
    lines = [
        "",
        "Task Queue is running. Press Ctrl-C to stop; tasks are kept.",
        "",
        f"  REST API    {at['gateway']}    browse it at {at['gateway']}/docs",
        f"  Dashboard   {at['dashboard']}",
        f"  Metrics     {at['gateway']}/metrics    {at['worker']}/metrics    {at['housekeeper']}/metrics",
        f"  Redis       {redis}",
        "",
        "Submit a task:",
        f"  curl -X POST {at['gateway']}/tasks -H 'Content-Type: application/json'{key} -d '{body}'",
        "",
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
