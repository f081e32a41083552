"""Translation of the driver's errors into ours, with advice."""

from __future__ import annotations

import re

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

from firmq.shared.errors import CorruptKey, IncompatibleSchema, StoreMisfit, StoreRefused, StoreUnavailable
from firmq.shared.redis.connections import ForeignFormat
from firmq.shared.redis.refusing import Refusing

# The last one is the wording of Redis 7.0 for scripts.
_SCRIPT = re.compile(r"\.? script: (?:[0-9a-f]+, )?on @\w+:\d+\.?")
"""The line of a script that an answer of Redis ends with; readers can do nothing with it."""
_DENIALS = ("NOPERM", "ACL failure", "The user executing the script can't")
_REFUSALS = ("READONLY", "MISCONF", "NOREPLICAS", "LOADING", "MASTERDOWN")


def translation(error: Exception) -> StoreUnavailable | None:
    """Returns our error; None unless it is the driver's, and caused by the server rather than the command."""
    if not isinstance(error, RedisError):
        return None
    said = _SCRIPT.sub("", str(error))
    match error:
        case ForeignFormat():
            return IncompatibleSchema(said)
        case AuthenticationError():
            return StoreMisfit(
                f"Redis refused the password: {said.rstrip('.')}. Check REDIS_PASSWORD, or the one in REDIS_URL"
            )
        case Refusing() | ReadOnlyError() | BusyLoadingError():
            return StoreRefused(f"Redis takes no writes now: {said}")
        case ConnectionError() | TimeoutError() | InvalidResponse():
            return _of_connecting(said)
        case ResponseError():
            return _of_answer(error, said)
    return StoreUnavailable(f"Redis failed: {said}")


def _of_answer(error: ResponseError, said: str) -> StoreUnavailable | None:
    if isinstance(error, OutOfMemoryError) or "OOM" in said:
        return StoreRefused(f"Redis has reached maxmemory and takes no more data: {said}. Raise maxmemory")
    if isinstance(error, NoPermissionError) or any(word in said for word in _DENIALS):
        return StoreMisfit(f"the Redis user lacks a right: {said}. Grant the rights in shared/redis-acl.conf")
    if any(word in said for word in _REFUSALS):
        return StoreRefused(f"Redis takes no writes now: {said}")
    return CorruptKey() if "WRONGTYPE" in said else None


_NO_TLS = "that port does not speak TLS: write redis:// instead of rediss://, or use the port that does"
NO_CERTIFICATE = "if the server wants a certificate of ours, set REDIS_CERT_FILE and REDIS_KEY_FILE"
_MISFITS = {
    "certificate verify failed": "REDIS_CA_FILE must hold the authority that signed the server's certificate, and the "
    "certificate must name the host in the address",
    "certificate required": NO_CERTIFICATE,
    "wrong version number": _NO_TLS,
    "record layer failure": _NO_TLS,
    "protocol error": "the server at this address does not speak the protocol of Redis: check host and port",
}
"""Fragments of messages of the driver and the TLS library, and the advice for them."""


def _of_connecting(said: str) -> StoreUnavailable:
    message = said.lower().replace("_", " ")
    for words, advice in _MISFITS.items():
        if words in message:
            return StoreMisfit(f"Redis cannot be reached this way: {said}. {advice[0].upper()}{advice[1:]}")
    return StoreUnavailable(f"Redis does not answer: {said}")
