"""What a part asks Redis before it starts.

A Redis that is away comes back, so a part starts without it and waits. One that answers and cannot be used (a wrong
password, TLS on one side only, too old, data of another version) will not mend itself: the part says what to change
and ends.
"""

from __future__ import annotations

import logging
import re
import socket
import ssl
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from redis.exceptions import NoPermissionError

from shared.config.settings import exit_with
from shared.errors import IncompatibleSchema, StoreMisfit, StoreUnavailable
from shared.redis.address import without_password
from shared.redis.client import connect, translated
from shared.redis.errors import NO_CERTIFICATE

if TYPE_CHECKING:
    from redis import Redis

log = logging.getLogger(__name__)

OLDEST = (6, 2)
"""The oldest server whose commands our scripts use."""
_PATIENCE = 1.0
"""Seconds for an answer; a part waits for a Redis that is slower."""
_OTHER_WAY_PATIENCE = 3.0
"""Seconds for an answer to the other scheme: where it is missed, a part waits in vain."""


def exit_if_unusable(url: str) -> None:
    """Ends the process with status 2 when this Redis can be reached and cannot be used."""
    try:
        ask(url)
    except (StoreMisfit, IncompatibleSchema) as error:
        exit_with(f"{error} ({without_password(url)})")
    except StoreUnavailable as error:
        log.warning("%s (%s); waiting for it", error, without_password(url))


def ask(url: str) -> None:
    """Raises StoreMisfit or WrongFormat when waiting will not help, StoreUnavailable when it may."""
    try:
        with translated(), connect(url, timeout=_PATIENCE, retries=0) as client:
            client.ping()
            refuse_old(info(client))
    except (StoreMisfit, IncompatibleSchema):
        raise
    except StoreUnavailable as error:
        _refuse_one_sided_tls(url)
        if _may_want_a_certificate(url, str(error)):
            raise StoreUnavailable(f"{error} ({NO_CERTIFICATE})") from None
        raise


def info(client: Redis) -> Mapping[str, Any]:
    """What the server says of itself; nothing when this user may not ask."""
    try:
        found: Mapping[str, Any] = client.info()
    except NoPermissionError:
        return {}
    return found


def version_of(said: Mapping[str, Any]) -> str:
    """The version whose commands it has: Valkey names the Redis that it is compatible with."""
    return str(said.get("redis_version", ""))


def refuse_old(said: Mapping[str, Any]) -> None:
    """Raises StoreMisfit for a server that lacks what we need."""
    numbers = tuple(map(int, re.findall(r"\d+", version_of(said))[:2]))
    if numbers and numbers < OLDEST:
        raise StoreMisfit(f"this is Redis {version_of(said)}: version 6.2 or newer, or Valkey, is needed")


def _refuse_one_sided_tls(url: str) -> None:
    """A server that expects TLS, or does not know it, looks like one that is away: so the other way is tried."""
    scheme, rest = url.split("://", 1)
    if scheme == "unix" or "+sentinel" in scheme:
        return
    other = "redis" if scheme == "rediss" else "rediss"
    where = urlsplit("//" + rest.partition("?")[0].rpartition("@")[2])
    if _speaks(where.hostname or "localhost", where.port or 6379, tls=other == "rediss"):
        raise StoreMisfit(f"this server answers to {other}:// and not to {scheme}://: correct REDIS_URL")


def _may_want_a_certificate(url: str, said: str) -> bool:
    """A server that misses ours hangs up without a word, after the handshake."""
    hung_up = any(word in said.lower() for word in ("closed", "eof occurred", "reset"))
    return hung_up and url.startswith("rediss") and "ssl_certfile=" not in url


def _speaks(host: str, port: int, *, tls: bool) -> bool:
    """Whether a server answers this way, be it that it wants a password or a certificate.

    By hand: the driver takes what TLS itself sends after the handshake for a connection that is not clean.
    """
    try:
        with socket.create_connection((host, port), _OTHER_WAY_PATIENCE) as connection:
            if tls:
                context = ssl.create_default_context()
                context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
                context.wrap_socket(connection, server_hostname=host).close()
                return True
            connection.sendall(b"PING\r\n")
            return connection.recv(1) in (b"+", b"-")
    except OSError:
        return False
