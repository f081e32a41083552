"""Clients with bounded waits.

redis-py's defaults wait 4 s for a refused connection and a minute for a server that hangs. Every client of ours has
time-outs; a command without an answer is sent again at most once, which the scripts allow.

Executors import this module for the code that they share with other parts, and never connect: redis-py takes 13 MB of
each process that imports it, so it is imported on first use.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from firmq.shared.domain.store_number import id_suffix
from firmq.shared.redis.keys import Keys, with_prefix

if TYPE_CHECKING:
    from redis import Redis

    from firmq.shared.config.settings import Settings


def connect(
    url: str,
    *,
    timeout: float = 0.9,
    retries: int = 1,
    retry_interval: float = 0,
    name: str | None = None,
    check_format: bool = True,
    max_connections: int = 0,
) -> Redis:
    """Returns a client with bounded waits.

    `timeout` bounds connecting and each answer in seconds; with `retries` a command takes at most
    `timeout * (retries + 1)`, and `retry_interval` before each of them. A blocking command needs a client with a longer
    timeout than its own. With `check_format=False` the client accepts data of any format. With `max_connections` a
    command waits for a free connection as for an answer. Raises ValueError for an invalid address.
    """
    from redis import Redis
    from redis.backoff import ConstantBackoff
    from redis.exceptions import ConnectionError
    from redis.retry import Retry

    from firmq.shared.redis.connections import make_pool

    # Only broken connections are retried; a time-out has used up the caller's time already.
    retry = Retry(ConstantBackoff(retry_interval), retries, supported_errors=(ConnectionError,))
    pool = make_pool(
        url, timeout=timeout, retry=retry, name=name, check_format=check_format, max_connections=max_connections
    )
    return Redis.from_pool(pool)


def connect_for(settings: Settings, name: str) -> Redis:
    """Returns a client for a process that serves requests, or submits tasks, with the bounds of its settings."""
    return connect(
        settings.store_url,
        timeout=settings.redis_timeout,
        retries=settings.redis_retries,
        retry_interval=settings.redis_retry_interval,
        max_connections=settings.redis_max_connections,
        name=name,
    )


def keys_of(redis: Redis) -> Keys:
    """Returns the keys of the system that a client belongs to."""
    return with_prefix(redis.connection_pool.connection_kwargs.get("key_prefix", ""))


def mark_of(redis: Redis) -> str:
    """Returns the suffix of task ids made in the store of this client."""
    return id_suffix(int(redis.connection_pool.connection_kwargs.get("store") or 0))


def text(value: object) -> str:
    """Returns an answer of Redis as text; invalid UTF-8 is escaped, not refused."""
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


def raw(value: object) -> bytes:
    """Returns an answer of Redis as bytes."""
    return value if isinstance(value, bytes) else str(value).encode()


@contextmanager
def translated() -> Iterator[None]:
    """Turns the driver's errors into ours, with advice."""
    try:
        yield
    except Exception as error:
        from firmq.shared.redis.errors import translation

        ours = translation(error)
        if ours is None:
            raise
        raise ours from error


def text_or_number(value: Any) -> Any:
    """Returns a part of a reply: text of bytes, a number as it is."""
    return text(value) if isinstance(value, bytes) else value
