"""Checks Redis before a component starts.

An unreachable Redis may come back, so the component starts and waits. A reachable but unusable one (a wrong password,
TLS on one side only, too old, data of another version) needs an operator: the component logs the advice and exits.
"""

from __future__ import annotations

import logging
import re
import socket
import ssl
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from redis.exceptions import ResponseError

from firmq.shared.config.redis_address import without_password
from firmq.shared.config.settings import exit_with
from firmq.shared.errors import IncompatibleSchema, StoreMisfit, StoreUnavailable
from firmq.shared.redis.client import connect, translated
from firmq.shared.redis.errors import NO_CERTIFICATE

if TYPE_CHECKING:
    from redis import Redis

log = logging.getLogger(__name__)

OLDEST = (6, 2)
"""The oldest server whose commands our scripts use."""
_PATIENCE = 1.0
"""Seconds to wait for an answer; a slower Redis counts as unreachable."""
_OTHER_WAY_PATIENCE = 3.0
"""Seconds to wait for an answer to the other scheme; after a slower one the component waits in vain."""


def exit_if_unusable(url: str) -> None:
    """Exits with status 2 when this Redis is reachable but unusable."""
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
    """Returns the server's INFO; empty when this user may not read it, which is no fault."""
    try:
        found: Mapping[str, Any] = client.info()
    except ResponseError:
        return {}
    return found


def version_of(said: Mapping[str, Any]) -> str:
    """Returns the version of its command set: Valkey names the Redis that it is compatible with."""
    return str(said.get("redis_version", ""))


def refuse_old(said: Mapping[str, Any]) -> None:
    """Raises StoreMisfit for a server that is too old."""
    numbers = tuple(map(int, re.findall(r"\d+", version_of(said))[:2]))
    if numbers and numbers < OLDEST:
        raise StoreMisfit(f"this is Redis {version_of(said)}: use version 6.2 or newer, or Valkey")


def _refuse_one_sided_tls(url: str) -> None:
    """Raises StoreMisfit for TLS on one side only, which looks like an outage: so the other scheme is tried."""
    scheme, rest = url.split("://", 1)
    if scheme == "unix" or "+" in scheme:
        return
    other = "redis" if scheme == "rediss" else "rediss"
    where = urlsplit("//" + rest.partition("?")[0].rpartition("@")[2])
    if _speaks(where.hostname or "localhost", where.port or 6379, tls=other == "rediss"):
        raise StoreMisfit(f"this server answers to {other}:// and not to {scheme}://: correct REDIS_URL")


def _may_want_a_certificate(url: str, said: str) -> bool:
    """Returns whether the server may need a client certificate: it then closes the connection after the handshake."""
    hung_up = any(word in said.lower() for word in ("closed", "eof occurred", "reset"))
    return hung_up and url.startswith("rediss") and "ssl_certfile=" not in url


def _speaks(host: str, port: int, *, tls: bool) -> bool:
    """Returns whether a server answers with this scheme, even if it requires a password or a certificate.

    Uses a raw socket: the driver takes data that TLS itself sends after the handshake for a broken connection.
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
