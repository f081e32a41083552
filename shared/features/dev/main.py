"""`firmq dev`: starts Redis, gateway, worker, housekeeper and dashboard, with one log; Ctrl-C stops all of them.

When a Python file changes, the worker reloads its handlers.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from types import FrameType
from typing import Any

from firmq.shared.child_processes import describe_exit
from firmq.shared.config.redis_address import completed, without_password
from firmq.shared.config.settings import Settings, exit_with, load_or_exit
from firmq.shared.config.signals import RELOAD
from firmq.shared.domain.url import in_url
from firmq.shared.errors import FirmqError, IncompatibleSchema, SettingsError, StoreUnavailable
from firmq.shared.features.dev.reload import OwnFiles, reloading
from firmq.shared.features.dev.sample_data import sample
from firmq.shared.features.dev.supervisor import SUPERVISOR, Service, ServiceLog, Supervisor
from firmq.shared.http.bind import LOOPBACK, free_port, port_problem
from firmq.shared.local.embedded_redis import EmbeddedRedis, choose_server
from firmq.shared.redis.client import connect, translated

_GRACE_OF_INGRESS = 15.0
"""Seconds for requests in flight to finish."""
_MARGIN = 5.0
"""Seconds above a worker's own limit, so that the worker itself ends slow tasks and returns them."""
_MOST_SHOWN = 8
"""Task types that the banner names."""
_EXAMPLE = "process"
"""The task type to try first where no modules were given."""
_WITHOUT_LOCKS = {"HOUSEKEEPER_DISTRIBUTED_EXECUTION_ENABLED": "false"}
_DEFAULT_URL = "http://localhost:8000"
_OURS = (Path(__file__).parents[3], Path(__file__).resolve().parents[3])
"""Folders of the product, also where its parts are links."""
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


@dataclass(frozen=True, slots=True)
class Handlers:
    """The task types of the modules of handlers, with the schemas of their data.

    `places` are the folders of the modules' packages, or files. `are_examples` is set when no modules were given.
    """

    modules: Sequence[str]
    types: Mapping[str, Any]
    places: Sequence[Path]
    are_examples: bool
    has_outbox: bool = False
    """Whether they are of a Django project with an outbox."""


def main(port: int | None = None, reload: bool = True) -> int:
    """Runs all services with the handlers of TASK_MODULES until a signal, and returns the exit status."""
    signal.signal(signal.SIGTERM, _interrupt)
    if port is not None:
        os.environ["GATEWAY_PORT"] = str(port)
    settings = load_or_exit()
    try:
        if not settings.has_one_address:
            raise SettingsError(
                "firmq dev runs on one Redis: set REDIS_URL to a single server, not several or a cluster, "
                "or start each part by its own command"
            )
        handlers = read_handlers(settings)
        parts = parts_of(settings, handlers)
        check_ports(parts, settings.bind_host)
        files = _watched(handlers) if reload else None
        if settings.redis_url or "redis_host" in settings.model_fields_set:
            reach(settings.store_url)
            description = f"{without_password(settings.store_url)} (external)"
            _run(parts, settings, settings.store_url, description, handlers, files)
        else:
            with _embedded(settings) as server:
                check_format(server, settings.key_prefix)
                description = _describe(server, settings.redis_port)
                _run(parts, settings, server.url, description, handlers, files, server)
    except SettingsError as error:
        exit_with(str(error))
    except FirmqError as error:
        print(f"\n{error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


def _interrupt(number: int, frame: FrameType | None) -> None:
    """Handles SIGTERM like Ctrl-C, so that a server that was just started is stopped."""
    raise KeyboardInterrupt


def parts_of(settings: Settings, handlers: Handlers) -> list[Part]:
    """Returns the parts with their ports; port 0 is replaced by a free one, so that the banner can show it."""
    relay = [("relay", "outbox_metrics_port", False)] if handlers.has_outbox or settings.outbox_database else []
    return [
        Part(name, setting.upper(), ingress, getattr(settings, setting) or free_port())
        for name, setting, ingress in (*_PARTS, *relay)
    ]


def read_handlers(settings: Settings) -> Handlers:
    """Returns the handlers of TASK_MODULES. Raises SettingsError if they cannot be imported.

    They are imported in another process, so that this one need not end when they change.
    """
    command = [sys.executable, "-P", "-m", "firmq.worker.handlers.describe", *settings.task_modules]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    errors = done.stderr.decode(errors="replace")
    if done.returncode:
        raise SettingsError(
            errors.strip() or f"{', '.join(settings.task_modules)}: import {describe_exit(done.returncode)}"
        )
    print(errors, end="", file=sys.stderr)
    found = json.loads(done.stdout)
    return Handlers(
        modules=settings.task_modules,
        types=found["types"],
        places=[Path(each) for each in found["places"]],
        are_examples="task_modules" not in settings.model_fields_set,
        has_outbox=found["outbox"],
    )


def _watched(handlers: Handlers) -> OwnFiles | None:
    if find_spec("watchfiles"):
        return OwnFiles(places_to_watch(handlers, Path.cwd()))
    print("Changed handlers are not reloaded: pip install 'firmq[local]' for that", file=sys.stderr)
    return None


def places_to_watch(handlers: Handlers, folder: Path) -> list[Path]:
    """Returns the folder, unless it is a home directory or `/`, and the places of handlers outside of it.

    Installed packages are left out.
    """
    top = [folder] if folder not in (Path.home(), Path("/")) else []
    others = [
        place
        for place in handlers.places
        if not any(place.is_relative_to(each) for each in (*top, *_OURS)) and "site-packages" not in place.parts
    ]
    return [*top, *others]


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
    except (FirmqError, ValueError) as error:
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
        pass  # for example a full disk: the services log it, and wait


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
    parts: Sequence[Part],
    settings: Settings,
    url: str,
    description: str,
    handlers: Handlers,
    files: OwnFiles | None,
    server: EmbeddedRedis | None = None,
) -> None:
    env = _environment(parts, settings, url, server)
    # Ingress stops first, so that no new tasks arrive while the workers drain.
    groups = [
        [_service(part, settings, env, handlers) for part in parts if part.ingress is ingress]
        for ingress in (True, False)
    ]
    log = ServiceLog(sys.stdout, [SUPERVISOR, *(part.name for part in parts)])
    log.line(SUPERVISOR, f"Redis is ready: {description}")
    needs_key = bool(settings.api_keys or settings.api_keys_file)
    text = banner(parts, description, handlers, needs_key=needs_key, reloads=files is not None)
    watch = server.revive if server else lambda: None
    supervisor = Supervisor(groups, log, on_ready=lambda: log.write(text), watch=watch)
    request = partial(supervisor.signal, "worker", RELOAD)
    with reloading(files, request, partial(log.line, SUPERVISOR)) if files else nullcontext():
        supervisor.run()
    log.line(SUPERVISOR, "all services have stopped")


def _service(part: Part, settings: Settings, env: Mapping[str, str], handlers: Handlers) -> Service:
    command: tuple[str, ...] = ("-P", "-m", "firmq", part.name)
    if part.name == "relay":  # Django's command finds the project in the current folder
        command = ("-m", "django", "firmq_outbox") if handlers.has_outbox else ("-P", "-m", "firmq", "outbox")
    return Service(
        name=part.name,
        argv=(sys.executable, *command),
        env=env,
        host=_reachable(settings.bind_host),
        port=part.port,
        grace=_GRACE_OF_INGRESS + settings.shutdown_delay if part.ingress else settings.drain_grace + _MARGIN,
    )


def _environment(
    parts: Sequence[Part], settings: Settings, url: str, server: EmbeddedRedis | None = None
) -> Mapping[str, str]:
    """Returns the environment of the services. It holds the URL of Redis, as arguments are visible to all users."""
    # Services write into a pipe, so only this process knows whether the output is a terminal.
    watched = {"LOG_FORMAT": "text"} if sys.stdout.isatty() else {}
    replaced = re.compile("(DECKARD_)?REDIS_(URL|HOST|PORT|ADDRESS|DATABASE|USERNAME|PASSWORD)(_FILE)?")
    host = in_url(_reachable(settings.bind_host))
    return {
        **watched,
        # One page shows every metric.
        "METRICS_SOURCES": ",".join(f"http://{host}:{part.port}/metrics" for part in parts if part.name != "gateway"),
        # The schema of an edited handler applies at once.
        "TYPE_CACHE_TIME": "0.1",
        # There is no Jaeger here: the dashboard shows the spans.
        "TRACE_LOCALLY": "true",
        **({"HISTORY_URL": f"sqlite:///{server.folder.path.resolve() / 'history.db'}"} if server else {}),
        # Handlers submit tasks to this gateway.
        "FIRMQ_URL": "".join(f"http://{host}:{part.port}" for part in parts if part.name == "gateway"),
        # The only housekeeper need not wait for the locks of one that was killed.
        **({} if "housekeeper_distributed_execution_enabled" in settings.model_fields_set else _WITHOUT_LOCKS),
        **{name: value for name, value in os.environ.items() if not replaced.fullmatch(name)},
        **{part.port_variable: str(part.port) for part in parts},
        "REDIS_URL": url,
        "BIND_HOST": settings.bind_host,
        "PYTHONUNBUFFERED": "1",
    }


def _reachable(host: str) -> str:
    """Returns an address that reaches a server listening on `host`."""
    return {"": LOOPBACK, "0.0.0.0": LOOPBACK, "::": "::1"}.get(host, host)  # noqa: S104  # compared, not listened on


def banner(parts: Sequence[Part], redis: str, handlers: Handlers, *, needs_key: bool, reloads: bool) -> str:
    """Returns the text printed when all services are ready: addresses, handlers, and a first command to try."""
    at = {part.name: f"http://localhost:{part.port}" for part in parts}
    lines = [
        "",
        "Firmq is running. Press Ctrl-C to stop; tasks are kept.",
        "",
        f"  Dashboard   {at['dashboard']}",
        f"  REST API    {at['gateway']}    browse it at {at['gateway']}/docs",
        f"  Metrics     {at['gateway']}/metrics    {at['worker']}/metrics    {at['housekeeper']}/metrics",
        f"  Redis       {redis}",
        f"  Handlers    {_listed(handlers)}{'; reloaded when a .py file changes' if reloads else ''}",
        "",
        *_first_commands(at["gateway"], handlers, needs_key),
        "",
    ]
    return "\n".join(lines) + "\n"


def _listed(handlers: Handlers) -> str:
    names = list(handlers.types)
    more = f" and {len(names) - _MOST_SHOWN} more" if len(names) > _MOST_SHOWN else ""
    modules = "the examples" if handlers.are_examples else ", ".join(handlers.modules)
    return f"{', '.join(names[:_MOST_SHOWN]) or 'none'}{more} ({modules})"


def _first_commands(url: str, handlers: Handlers, needs_key: bool) -> list[str]:
    """Returns the commands that submit a task of the first type, or advice if there is none."""
    if not handlers.types:
        return ['There is no task type yet: put @task("NAME") from firmq above a function of these modules.']
    name = _EXAMPLE if handlers.are_examples else next(iter(handlers.types))
    data = sample(handlers.types[name])
    key, header = ("FIRMQ_API_KEY=$KEY ", ' -H "Authorization: Bearer $KEY"') if needs_key else ("", "")
    command = "firmq" if shutil.which("firmq") else f"{sys.executable} -m firmq"
    option = "" if url == _DEFAULT_URL else f" --url {url}"
    body = shlex.quote(json.dumps({"type": name, "data": data}))
    lines = [
        "Submit a task:",
        f"  {key}{command}{option} submit {name} {shlex.quote(json.dumps(data))} --watch",
        f"  curl -X POST {url}/tasks -H 'Content-Type: application/json'{header} -d {body}",
    ]
    hint = ["", "Run your own handlers with: firmq dev PACKAGE.MODULE"]
    return [*lines, *(hint if handlers.are_examples else ())]


if __name__ == "__main__":
    sys.exit(main())
