"""Clients that give up in time.

redis-py's defaults wait 4 s for a refused connection and a minute for a server that hangs. Every client of ours has
time-outs; a command that got no answer is sent again at most once, which the scripts allow.

Executors import this for what they share with other parts, and never connect: redis-py takes 13 MB of each process that
imports it, so it is imported when something is asked of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from redis import Redis


def connect(
    url: str,
    *,
    timeout: float = 0.9,
    retries: int = 1,
    name: str | None = None,
    check_format: bool = True,
    max_connections: int = 0,
) -> Redis:
    """A client whose every wait ends.

    `timeout` bounds connecting and each answer in seconds; with `retries` a command takes at most
    `timeout * (retries + 1)`. A blocking command needs a client whose timeout is longer than its own. With
    `check_format=False` it talks to a server whatever the format of its data is. With `max_connections` a command waits
    for a free connection as for an answer. Raises ValueError when nobody can read the address.
    """
    from redis import Redis
    from redis.backoff import NoBackoff
    from redis.exceptions import ConnectionError
    from redis.retry import Retry

    from shared.redis.connections import make_pool

    # Only broken connections are worth a second try; a time-out has used up the caller's patience already.
    retry = Retry(NoBackoff(), retries, supported_errors=(ConnectionError,))
    pool = make_pool(
        url, timeout=timeout, retry=retry, name=name, check_format=check_format, max_connections=max_connections
    )
    return Redis.from_pool(pool)


def text(value: object) -> str:
    """What Redis answered, as text; bytes that are no UTF-8 are shown, not refused."""
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


def raw(value: object) -> bytes:
    """What Redis answered, as bytes."""
    return value if isinstance(value, bytes) else str(value).encode()


@contextmanager
def translated() -> Iterator[None]:
    """Turns the driver's errors into ours, in words that say what to change."""
    try:
        yield
    except Exception as error:
        from shared.redis.errors import translation

        ours = translation(error)
        if ours is None:
            raise
        raise ours from error
