"""`make run`: starts Redis, gateway, worker, housekeeper and dashboard, with one log; Ctrl-C stops all of them."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Mapping, Sequence
from types import FrameType

from shared.config.settings import Settings, exit_with, load_or_exit
from shared.errors import SettingsError, TaskQueueError
from shared.local.banner import banner
from shared.local.parts import Part, check_ports, origin, parts_of, service_of
from shared.local.service_log import ServiceLog, wants_colour
from shared.local.store import Store, open_store
from shared.local.supervisor import SUPERVISOR, Supervisor


def main() -> int:
    """Runs all services until a signal and returns the exit status."""
    signal.signal(signal.SIGTERM, _interrupt)
    settings = load_or_exit()
    try:
        parts = parts_of(settings)
        check_ports(parts, settings.bind_host)
        with open_store(settings, os.environ) as store:
            _run(parts, settings, store)
            _ignore_signals()
    except SettingsError as error:
        exit_with(str(error))
    except TaskQueueError as error:
        print(f"\n{error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


def _run(parts: Sequence[Part], settings: Settings, store: Store) -> None:
    env = _environment(parts, settings, store)
    # Ingress stops first, so that no new tasks arrive while the workers drain.
    groups = [
        [service_of(part, settings, env) for part in parts if part.ingress],
        [service_of(part, settings, env) for part in parts if not part.ingress],
    ]
    log = ServiceLog(sys.stdout, [SUPERVISOR, *(part.name for part in parts)], colour=wants_colour(sys.stdout))
    log.line(SUPERVISOR, f"Redis is ready: {store.description}")
    text = banner(parts, store, keys=bool(settings.api_keys or settings.api_keys_file))
    Supervisor(groups, log, on_ready=lambda: log.write(text), watch=store.watch).run()
    log.line(SUPERVISOR, "all services have stopped")


def _environment(parts: Sequence[Part], settings: Settings, store: Store) -> Mapping[str, str]:
    """Returns the environment of the services. It holds the URL of Redis, as arguments are visible to all users."""
    # Services write into a pipe, so only this process knows whether the output is a terminal.
    watched = {"LOG_FORMAT": "text"} if sys.stdout.isatty() else {}
    replaced = {"REDIS_URL", "REDIS_HOST", "REDIS_PORT", "REDIS_PASSWORD"}
    return {
        **watched,
        # One page shows every metric.
        "METRICS_SOURCES": ",".join(f"{origin(part, settings)}/metrics" for part in parts if part.name != "gateway"),
        # There is no Jaeger here: the dashboard shows the spans.
        "TRACE_LOCALLY": "true",
        **{name: value for name, value in os.environ.items() if name not in replaced},
        **{part.port_variable: str(part.port) for part in parts},
        "REDIS_URL": store.url,
        "BIND_HOST": settings.bind_host,
        "PYTHONUNBUFFERED": "1",
    }


def _interrupt(number: int, frame: FrameType | None) -> None:
    """Handles SIGTERM like Ctrl-C, so that a server that was just started is stopped."""
    raise KeyboardInterrupt


def _ignore_signals() -> None:
    """Ignores further signals while Redis stops, so that they do not interrupt its last write."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)


if __name__ == "__main__":
    sys.exit(main())
