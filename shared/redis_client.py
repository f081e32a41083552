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
    InvalidResponse,
    NoPermissionError,
    OutOfMemoryError,
    ReadOnlyError,
    RedisError,
    ResponseError,
    TimeoutError,
)
from redis.retry import Retry

from shared.errors import DamagedKey, StoreMisfit, StoreRefused, StoreUnavailable, WrongFormat
from shared.redis_connections import ForeignFormat, Refusing, make_pool


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
    except RedisError as error:
        ours = _translation(error)
        if ours is None:
            raise
        raise ours from error


_REFUSALS = ("READONLY", "MISCONF", "NOREPLICAS", "LOADING", "MASTERDOWN")


def _translation(error: RedisError) -> StoreUnavailable | None:
    """None for what is no trouble of the server but of the command."""
    said = str(error)
    match error:
        case ForeignFormat():
            return WrongFormat(said)
        case AuthenticationError():
            return StoreMisfit(
                f"Redis refused the password: {said.rstrip('.')}. Check REDIS_PASSWORD, or the one in REDIS_URL"
            )
        case Refusing() | ReadOnlyError() | BusyLoadingError():
            return StoreRefused(f"Redis does not take writes now: {said}")
        case ConnectionError() | TimeoutError() | InvalidResponse():
            return _of_connecting(said)
        case ResponseError():
            return _of_answer(error, said)
    return StoreUnavailable(f"Redis failed: {said}")


def _of_answer(error: ResponseError, said: str) -> StoreUnavailable | None:
    if isinstance(error, OutOfMemoryError) or "OOM" in said:
        return StoreRefused(f"Redis has reached maxmemory and takes no more data: {said}")
    if isinstance(error, NoPermissionError) or "NOPERM" in said or "ACL failure" in said:
        return StoreMisfit(f"the Redis user lacks a right: {said}. shared/redis-acl.conf lists what it needs")
    if any(word in said for word in _REFUSALS):
        return StoreRefused(f"Redis does not take writes now: {said}")
    return DamagedKey() if "WRONGTYPE" in said else None


_NO_TLS = "that port does not speak TLS: write redis:// instead of rediss://, or use the port that does"
NO_CERTIFICATE = "if the server wants a certificate of ours, set REDIS_CERT_FILE and REDIS_KEY_FILE"
_MISFITS = {
    "certificate verify failed": "REDIS_CA_FILE must hold the authority that signed the server's certificate, and the "
    "host in the address must be one that the certificate names",
    "certificate required": NO_CERTIFICATE,
    "wrong version number": _NO_TLS,
    "record layer failure": _NO_TLS,
    "protocol error": "what listens there does not speak the protocol of Redis",
}
"""What the driver and the TLS library say in passing, and what to do about it."""


def _of_connecting(said: str) -> StoreUnavailable:
    heard = said.lower().replace("_", " ")
    for words, advice in _MISFITS.items():
        if words in heard:
            return StoreMisfit(f"Redis cannot be reached this way: {said}. {advice[0].upper()}{advice[1:]}")
    return StoreUnavailable(f"Redis does not answer: {said}")
