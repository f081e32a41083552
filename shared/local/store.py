"""The Redis of the single-machine start: embedded, or an external one."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from shared.config.redis_address import without_password
from shared.config.settings import Settings
from shared.errors import SettingsError, TaskQueueError
from shared.local.embedded_redis import EmbeddedRedis
from shared.local.ports import LOOPBACK, port_problem
from shared.local.server_binary import choose_server
from shared.redis.client import connect, translated

_PATIENCE = timedelta(seconds=2.5)


@dataclass(frozen=True, slots=True, kw_only=True)
class Store:
    """A Redis that answers; `watch` restarts an embedded one and returns a line for the log."""

    url: str
    description: str
    url_file: Path | None = None
    watch: Callable[[], str | None] = lambda: None


@contextmanager
def open_store(settings: Settings, env: Mapping[str, str]) -> Iterator[Store]:
    """Provides a store for the duration of the block. Raises SettingsError if there is none.

    `DATA_DIR` and `REDIS_SERVER_BINARY` are read from `env`; they concern a single machine only.
    """
    if settings.redis_url or "redis_host" in settings.model_fields_set:
        reach(settings.store_url)
        yield Store(url=settings.store_url, description=f"{without_password(settings.store_url)} (external)")
        return
    server = choose_server(env.get("REDIS_SERVER_BINARY"))
    data_dir = Path(env.get("DATA_DIR") or ".data")
    with EmbeddedRedis(data_dir=data_dir, port=_port(settings), server=server) as redis:
        yield Store(
            url=redis.url,
            description=_describe(redis, wanted=settings.redis_port),
            url_file=redis.folder.url_file,
            watch=redis.revive,
        )


def reach(url: str) -> None:
    """Returns when Redis answers; raises SettingsError within three seconds when it does not.

    The time-outs of a connection do not cover the look-up of its host, which can hang much longer. Hence the thread,
    which may stay behind.
    """
    problems: list[str] = []
    asking = threading.Thread(target=_ask, args=(url, problems), daemon=True)
    asking.start()
    asking.join(_PATIENCE.total_seconds())
    if asking.is_alive():
        problems.append("Redis does not answer")
    if problems:
        what = f"{' '.join(problems[0].split())} ({without_password(url)})"
        raise SettingsError(f"{what}: start it, correct REDIS_URL or REDIS_HOST, or unset them to have one embedded")


def _ask(url: str, problems: list[str]) -> None:
    try:
        with translated(), connect(url, timeout=1, retries=0) as client:
            client.ping()
    except (TaskQueueError, ValueError) as error:
        problems.append(str(error))


def _port(settings: Settings) -> int:
    """Returns the configured port; without one, the default port, or 0 (any port) if that is in use."""
    problem = port_problem(LOOPBACK, settings.redis_port) if settings.redis_port else None
    if problem is None:
        return settings.redis_port
    if "redis_port" in settings.model_fields_set:
        raise SettingsError(f"port {settings.redis_port} of Redis {problem}: set REDIS_PORT to another port")
    return 0


def _describe(redis: EmbeddedRedis, *, wanted: int) -> str:
    moved = f" ({wanted} was in use)" if wanted not in (0, redis.port) else ""
    repaired = f"; {redis.repaired}" if redis.repaired else ""
    return f"{LOOPBACK}:{redis.port}{moved}, {redis.server}, data in {redis.folder.path}{repaired}"
