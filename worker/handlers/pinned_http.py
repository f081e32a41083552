"""One POST to an external address: to a checked IP address, without following redirects.

The name is resolved here, once; every address of it must be allowed, and the connection is made to one of these, not to
the name. So a later change of the name (DNS rebinding) has no effect. A redirect is returned like any other answer.
"""

from __future__ import annotations

import http.client
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from ipaddress import ip_address

from taskqueue.shared.domain.egress_policy import EgressPolicy, NotAllowed, Target, is_public

WITHIN = 10.0
"""Seconds from resolving the name to the end of the answer; a slow stream of bytes does not extend it."""
CONNECT_WITHIN = 5.0
"""Seconds to connect to one address of several."""
MOST_READ = 4096

Resolve = Callable[[str, int], Sequence[str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The answer: the beginning of the body is enough for diagnosis.

    The body of an internal host is left out: the sender of a task must not read it.
    """

    status: int
    address: str
    seconds: float
    body: str
    retry_after: str


def resolve(host: str, port: int) -> list[str]:
    """Returns every address of a name. Raises OSError."""
    return [str(each[4][0]) for each in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)]


def addresses_of(target: Target, egress_policy: EgressPolicy, ask: Resolve = resolve) -> list[str]:
    """Returns the addresses. Raises NotAllowed when one of them must not be called, OSError if there is none."""
    found = list(dict.fromkeys(ask(target.host, target.port)))
    if not found:
        raise OSError(f"{target.host} has no address")
    for each in found:
        try:
            address = ip_address(each)
        except ValueError:
            raise NotAllowed(f"{target.host} resolves to {each!r}, which is not an address") from None
        egress_policy.check(target.host, address)
    return found


def in_time(ask: Resolve, end: float) -> Resolve:
    """Returns the resolver with a deadline `end`: a resolver that waits for its servers cannot be stopped."""

    def asked(host: str, port: int) -> Sequence[str]:
        answer: Future[Sequence[str]] = Future()

        def wait() -> None:
            try:
                answer.set_result(ask(host, port))
            except Exception as error:  # raised in the calling thread
                answer.set_exception(error)

        threading.Thread(target=wait, name="resolver", daemon=True).start()
        try:
            return answer.result(_left(end))
        except TimeoutError:
            raise TimeoutError(f"resolving {host} took too long") from None

    return asked


def post(
    target: Target, addresses: Sequence[str], body: bytes, headers: Mapping[str, str], within: float = WITHIN
) -> Answer:
    """Sends a POST to the first address that takes a connection. Raises OSError or http.client.HTTPException.

    Raises TimeoutError, too, when all of it takes longer than `within` seconds.
    """
    began = time.monotonic()
    connection = http.client.HTTPConnection(target.host, target.port)
    connection.sock, address = _connected(target, addresses, began + within)
    try:
        with _ended_at(began + within, connection.sock):
            connection.request("POST", target.path, body, {"Host": target.authority, "Connection": "close", **headers})
            reply = connection.getresponse()
            shown = is_public(ip_address(address))
            return Answer(
                status=reply.status,
                address=address,
                seconds=round(time.monotonic() - began, 3),
                body=reply.read1(MOST_READ).decode("utf-8", "replace") if shown else "",
                retry_after=reply.headers.get("Retry-After", ""),
            )
    finally:
        connection.close()


@contextmanager
def _ended_at(end: float, sock: socket.socket) -> Iterator[None]:
    """Shuts the socket down at a deadline and raises TimeoutError then; its own time-out limits one wait only."""
    expired = threading.Event()

    def shut_down() -> None:
        expired.set()
        with suppress(OSError):
            sock.shutdown(socket.SHUT_RDWR)

    ending = threading.Timer(_left(end), shut_down)
    ending.start()
    try:
        yield
    finally:
        ending.cancel()
        ending.join()
        if expired.is_set():  # an answer that was cut off may look complete
            raise TimeoutError("the answer took too long")


def _left(end: float) -> float:
    left = end - time.monotonic()
    if left <= 0:
        raise TimeoutError("the answer took too long")
    return left


def _connected(target: Target, addresses: Sequence[str], end: float) -> tuple[socket.socket, str]:
    """Returns a connection and its address."""
    failure = OSError(f"{target.host} has no address")
    for each in addresses:
        try:
            sock = socket.create_connection((each, target.port), min(CONNECT_WITHIN, _left(end)))
        except OSError as error:
            failure = error
            continue
        sock.settimeout(_left(end))
        if target.secure:
            sock = ssl.create_default_context().wrap_socket(sock, server_hostname=target.host)
        return sock, each
    raise failure
