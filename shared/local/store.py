"""The Redis that everything on this machine runs on: one of our own, or one that somebody else looks after."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from shared.config.settings import Settings
from shared.errors import SettingsError, TaskQueueError
from shared.local.embedded_redis import EmbeddedRedis
from shared.local.ports import LOOPBACK, port_problem
from shared.local.server_binary import choose_server
from shared.redis.address import without_password
from shared.redis.client import connect, translated

_PATIENCE = timedelta(seconds=2.5)


@dataclass(frozen=True, slots=True, kw_only=True)
class Store:
    """A Redis that answers; `watch` looks after it, if that is up to us, and says what it had to do."""

    url: str
    description: str
    url_file: Path | None = None
    watch: Callable[[], str | None] = lambda: None


@contextmanager
def open_store(settings: Settings, env: Mapping[str, str]) -> Iterator[Store]:
    """A store for as long as the block runs. Raises SettingsError when there is none to be had.

    `DATA_DIR` and `REDIS_SERVER_BINARY` are read from `env`; they concern a single machine only.
    """
    if settings.redis_url or "redis_host" in settings.model_fields_set:
        reach(settings.store_url)
        yield Store(url=settings.store_url, description=f"{without_password(settings.store_url)} (not ours)")
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

    The time-outs of a connection do not cover looking up its host, which can hang much longer. Hence the thread,
    which is left behind if need be.
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
    """The port that was asked for; when nobody asked and the usual one is taken, 0, which means any."""
    problem = port_problem(LOOPBACK, settings.redis_port) if settings.redis_port else None
    if problem is None:
        return settings.redis_port
    if "redis_port" in settings.model_fields_set:
        raise SettingsError(f"port {settings.redis_port}, wanted by Redis, {problem}: set REDIS_PORT to another one")
    return 0


def _describe(redis: EmbeddedRedis, *, wanted: int) -> str:
    moved = f" ({wanted} was taken)" if wanted not in (0, redis.port) else ""
    repaired = f"; {redis.repaired}" if redis.repaired else ""
    return f"{LOOPBACK}:{redis.port}{moved}, {redis.server}, data in {redis.folder.path}{repaired}"
