"""One HTTP request to an external address: to a checked IP address, without following redirects.

The name is resolved here, once; every address of it must be allowed, and the connection is made to one of these, not to
the name. So a later change of the name (DNS rebinding) has no effect. A redirect is returned like any other answer.

Calls block, each in a thread of its own, which `in_thread` starts and whose connection it ends when time is over or the
task is cancelled: neither a name server nor a slow stream of bytes can hold a handler up.
"""

from __future__ import annotations

import asyncio
import http.client
import re
import socket
import ssl
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import closing, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import cache
from ipaddress import ip_address
from typing import TypeVar

from firmq.shared.domain.egress_policy import EgressPolicy, NotAllowed, Target

CONNECT_WITHIN = 5.0
"""Seconds to connect to one address of several."""
MOST_READ = 4096
_SECONDS = re.compile(r"[0-9]{1,9}")
_LONGEST_DATE = 40
_SHORTEST_PAUSE = 1.0

Resolve = Callable[[str, int], Sequence[str]]
T = TypeVar("T")


class CallFailed(Exception):
    """The host could not be reached, or did not answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The answer: names of headers are in lower case; `complete` is whether the body is not cut."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    complete: bool

    def pause(self, most: float) -> float | None:
        """Returns the seconds of Retry-After, at least one and at most `most`; None without a valid one."""
        given = self.headers.get("retry-after", "")
        if _SECONDS.fullmatch(given):
            return max(_SHORTEST_PAUSE, min(float(given), most))
        if len(given) > _LONGEST_DATE:
            return None
        try:
            when = parsedate_to_datetime(given)
        except (ValueError, TypeError):
            return None
        seconds = (when if when.tzinfo else when.replace(tzinfo=UTC)) - datetime.now(UTC)
        return max(_SHORTEST_PAUSE, min(seconds.total_seconds(), most))


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


class Connection:
    """A connection for one request; `abort` ends it from another thread. `address` is the peer's."""

    def __init__(self, egress_policy: EgressPolicy, ask: Resolve = resolve) -> None:
        self.egress_policy = egress_policy
        self.ask = ask
        self.address = ""
        self._sock: socket.socket | None = None
        self._aborted = False

    def abort(self) -> None:
        """Ends the request, wherever it is: `send` raises CallFailed."""
        self._aborted = True
        if self._sock is not None:
            with suppress(OSError):
                socket.socket.shutdown(self._sock, socket.SHUT_RDWR)  # TLS's own takes its state from the other thread

    def send(
        self, url: str, method: str, body: bytes | None, headers: Mapping[str, str], most: int | None = None
    ) -> Answer:
        """Sends a request to the first address that takes a connection, and reads up to `most` bytes of the answer.

        Without `most`, only the bytes that arrive with the head are read. Raises NotAllowed, and CallFailed when
        there is no answer.
        """
        target = self.egress_policy.read(url)
        try:
            self.address = self._connect(target, addresses_of(target, self.egress_policy, self.ask))
            return self._request(target, method, body, headers, most)
        except http.client.HTTPException as error:
            # The text of the error comes from the host, and the sender of a task must not read an internal host. The
            # traceback would show it, too.
            raise CallFailed(f"did not send a valid HTTP response ({type(error).__name__})") from None
        except OSError as error:
            raise CallFailed(f"did not answer: {type(error).__name__}: {error}") from error
        finally:
            if self._sock is not None:
                self._sock.close()

    def _connect(self, target: Target, addresses: Sequence[str]) -> str:
        """Connects to an address and returns it. Raises OSError."""
        failure = OSError(f"{target.host} has no address")
        for each in addresses:
            try:
                sock = socket.create_connection((each, target.port), CONNECT_WITHIN)
            except OSError as error:
                failure = error
                continue
            self._take(sock)
            if target.secure:
                secure = _tls().wrap_socket(sock, server_hostname=target.host, do_handshake_on_connect=False)
                self._take(secure)
                secure.do_handshake()
            return each
        raise failure

    def _take(self, sock: socket.socket) -> None:
        """Makes this the socket that `abort` ends. Raises OSError when that was called before."""
        sock.settimeout(None)
        self._sock = sock
        if self._aborted:
            raise OSError("the call was aborted")

    def _request(
        self, target: Target, method: str, body: bytes | None, headers: Mapping[str, str], most: int | None
    ) -> Answer:
        """Sends the request and reads the answer. Raises OSError and http.client.HTTPException."""
        connection = http.client.HTTPConnection(target.host, target.port)
        connection.sock = self._sock
        with closing(connection):
            connection.request(method, target.path, body, {"Host": target.authority, "Connection": "close", **headers})
            reply = connection.getresponse()
            read = reply.read1(MOST_READ) if most is None else reply.read(most + 1)
            missing = most is not None and len(read) <= most and reply.length
        if missing or self._aborted:  # an answer that was cut off may look complete
            raise http.client.IncompleteRead(b"")
        return Answer(
            status=reply.status,
            headers={name.lower(): value for name, value in reply.headers.items()},
            body=read[:most],
            complete=most is None or len(read) <= most,
        )


async def in_thread(connection: Connection, work: Callable[[], T], within: float | None = None) -> T:
    """Runs work that uses the connection in a thread, and aborts it when it takes longer, or when it is cancelled.

    Raises the errors of `work`, and CallFailed when it took longer than `within` seconds.
    """
    done: Future[T] = Future()

    def run() -> None:
        if not done.set_running_or_notify_cancel():
            return
        try:
            done.set_result(work())
        except BaseException as error:  # raised in the coroutine
            done.set_exception(error)

    threading.Thread(target=run, name="http call", daemon=True).start()
    try:
        async with asyncio.timeout(within):
            return await asyncio.wrap_future(done)
    except TimeoutError:
        raise CallFailed(f"did not answer: TimeoutError: it took longer than {within:g} s") from None
    finally:
        connection.abort()


@cache
def _tls() -> ssl.SSLContext:
    """Returns the settings of TLS; loading the authorities takes milliseconds."""
    return ssl.create_default_context()
