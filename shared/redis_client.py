"""Clients that give up in time.

redis-py's defaults wait 4 s for a refused connection and a minute for a server that hangs. Every client of ours has
time-outs; a command that got no answer is sent again at most once, which the scripts allow.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from redis import Redis
from redis.backoff import NoBackoff
from redis.exceptions import (
    AuthenticationError,
    BusyLoadingError,
    ConnectionError,
    OutOfMemoryError,
    ReadOnlyError,
    RedisError,
    ResponseError,
    TimeoutError,
)
from redis.retry import Retry

from shared.errors import StoreRefused, StoreUnavailable


def connect(url: str, *, timeout: float = 0.9, retries: int = 1, name: str | None = None) -> Redis:
    """A client whose every wait ends.

    `timeout` bounds connecting and each answer in seconds; with `retries` a command takes at most
    `timeout * (retries + 1)`. A blocking command needs a client whose timeout is longer than its own.
    """
    # Only broken connections are worth a second try; a time-out has used up the caller's patience already.
    retry = Retry(NoBackoff(), retries, supported_errors=(ConnectionError,))
    return Redis.from_url(
        url,
        socket_timeout=timeout,
        socket_connect_timeout=timeout,
        socket_keepalive=True,
        retry=retry,
        client_name=name,
        protocol=2,
    )


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
    except OutOfMemoryError as error:
        raise StoreRefused(f"Redis has reached maxmemory and takes no more data: {error}") from error
    except (ReadOnlyError, BusyLoadingError) as error:
        raise StoreRefused(f"Redis does not take writes now: {error}") from error
    except AuthenticationError as error:
        raise StoreUnavailable(f"Redis refused the password: {error}. Check REDIS_URL or REDIS_PASSWORD.") from error
    except (ConnectionError, TimeoutError) as error:
        raise StoreUnavailable(f"Redis does not answer: {error}") from error
    except ResponseError as error:
        if any(word in str(error) for word in ("OOM", "READONLY", "MISCONF", "NOREPLICAS", "LOADING", "MASTERDOWN")):
            raise StoreRefused(f"Redis does not take writes now: {error}") from error
        raise
    except RedisError as error:
        raise StoreUnavailable(f"Redis failed: {error}") from error
