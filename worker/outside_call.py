"""One POST to an address outside: to an address that was looked at, and never to where an answer points.

The name is resolved here, once; every address it has must be allowed, and the connection is made to one of these, not
to the name. So a name that means something else a moment later changes nothing. A redirect is an answer like any other.
"""

from __future__ import annotations

import http.client
import socket
import ssl
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from ipaddress import ip_address

from shared.outside import NotAllowed, Outside, Target

TIMEOUT = 10.0
"""Seconds that connecting, and each wait for a part of the answer, may take."""
MOST_READ = 4096

Resolve = Callable[[str, int], Sequence[str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What came back: the beginning of the body is enough to see what went wrong."""

    status: int
    address: str
    seconds: float
    body: str
    retry_after: str


def resolve(host: str, port: int) -> list[str]:
    """Every address of a name. Raises OSError."""
    return [str(each[4][0]) for each in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)]


def addresses_of(target: Target, outside: Outside, ask: Resolve = resolve) -> list[str]:
    """The addresses to connect to. Raises NotAllowed when one of them must not be called, OSError if there is none."""
    found = list(dict.fromkeys(ask(target.host, target.port)))
    if not found:
        raise OSError(f"{target.host} has no address")
    for each in found:
        try:
            address = ip_address(each)
        except ValueError:
            raise NotAllowed(f"{target.host} resolves to {each!r}, which is no address") from None
        outside.check(target.host, address)
    return found


def post(target: Target, addresses: Sequence[str], body: bytes, headers: Mapping[str, str]) -> Answer:
    """Sends a POST to the first address that takes a connection. Raises OSError or http.client.HTTPException."""
    began = time.monotonic()
    connection = _connected(target, addresses)
    try:
        connection.request("POST", target.path, body, {"Host": target.authority, "Connection": "close", **headers})
        reply = connection.getresponse()
        # One read, because an answer that drips in must not hold us up.
        text = reply.read1(MOST_READ).decode("utf-8", "replace")
        return Answer(
            status=reply.status,
            address=connection.reached,
            seconds=round(time.monotonic() - began, 3),
            body=text,
            retry_after=reply.headers.get("Retry-After", ""),
        )
    finally:
        connection.close()


class _To(http.client.HTTPConnection):
    """A connection that is made to an address which was looked at."""

    reached = ""


def _connected(target: Target, addresses: Sequence[str]) -> _To:
    failure = OSError(f"{target.host} has no address")
    for each in addresses:
        try:
            sock = socket.create_connection((each, target.port), TIMEOUT)
        except OSError as error:
            failure = error
            continue
        if target.secure:
            sock = ssl.create_default_context().wrap_socket(sock, server_hostname=target.host)
        connection = _To(target.host, target.port, timeout=TIMEOUT)
        connection.sock, connection.reached = sock, each
        return connection
    raise failure
