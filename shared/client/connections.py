"""Connections to a gateway, used by one thread at a time each."""

from __future__ import annotations

import os
import socket
import ssl
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from http.client import SWITCHING_PROTOCOLS, HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection

from firmq.shared.client.response import Answer

__all__ = ["CONNECT", "IDLE", "KEPT", "Connections", "HTTPResponse", "silent"]

CONNECT = 2.0
"""Time limit for connecting, in seconds; a host that is down may drop packets."""
KEPT = 8
"""Maximum idle connections kept."""
IDLE = 30.0
"""Seconds for which an idle connection is kept; the gateway closes it after KEEP_ALIVE_TIMEOUT."""


class Connections:
    """Connections to one address. Thread-safe, and a forked process gets connections of its own."""

    LOST = (OSError, HTTPException)
    """Exceptions for a lost response."""

    def __init__(self, host: str, port: int | None, tls: ssl.SSLContext | None) -> None:
        self.host = host
        self.port = port or (443 if tls else 80)  # without it, http.client takes the end of an IPv6 address for one
        self.tls = tls
        self._begin()

    def _begin(self) -> None:
        self._kept: list[tuple[float, HTTPConnection]] = []
        self._lock = threading.Lock()
        self._process = os.getpid()

    def request(
        self,
        method: str,
        target: str,
        content: bytes | None,
        headers: Mapping[str, str],
        timeout: float,
        *,
        reuse: bool,
    ) -> Answer:
        """Sends a request and returns its response; with `reuse`, on an idle connection if there is one."""
        if self._process != os.getpid():
            self._begin()  # the parent reads from those that were kept, and may have held the lock
        # The gateway may just have closed a reused connection, and then it is unknown how much it has read.
        connection = (self._take(timeout) if reuse else None) or self.connect(timeout)
        try:
            connection.request(method, target, content, dict(headers))
            response = connection.getresponse()
            answer = Answer(response.status, response.headers, response.read())
        except BaseException:
            connection.close()
            raise
        if response.will_close:
            connection.close()
        else:
            self._keep(connection)
        return answer

    def long_poll(self, seconds: float, timeout: float) -> nullcontext[float]:
        """Gives the seconds for which a request may wait at the gateway: all, as each thread has its own connection."""
        return nullcontext(seconds)

    @contextmanager
    def stream(self, target: str, headers: Mapping[str, str], timeout: float) -> Iterator[HTTPResponse]:
        """Requests a stream on a connection of its own; `timeout` is the longest silence, in seconds."""
        connection = self.connect(timeout)
        try:
            connection.request("GET", target, headers=dict(headers))
            with connection.getresponse() as response:
                yield response
        finally:
            connection.close()

    def connect(self, timeout: float) -> HTTPConnection:
        """Opens a connection; `timeout` is the time limit of its responses, in seconds."""
        soon = min(timeout, CONNECT)
        connection = (
            HTTPConnection(self.host, self.port, timeout=soon)
            if self.tls is None
            else HTTPSConnection(self.host, self.port, timeout=soon, context=self.tls)
        )
        connection.response_class = _Response
        connection.connect()
        connection.sock.settimeout(timeout)
        return connection

    def close(self) -> None:
        """Closes all idle connections."""
        with self._lock:
            kept, self._kept = self._kept, []
        for _, connection in kept:
            connection.close()

    def _take(self, timeout: float) -> HTTPConnection | None:
        with self._lock:
            while self._kept:
                since, connection = self._kept.pop()
                if time.monotonic() - since < IDLE and connection.sock is not None:
                    connection.sock.settimeout(0)
                    if silent(connection.sock):
                        connection.sock.settimeout(timeout)
                        return connection
                connection.close()
        return None

    def _keep(self, connection: HTTPConnection) -> None:
        with self._lock:
            if len(self._kept) < KEPT:
                self._kept.append((time.monotonic(), connection))
                return
        connection.close()


class _Response(HTTPResponse):
    def begin(self) -> None:
        """Reads the head of the response, and of interim responses before it, such as 103 Early Hints."""
        super().begin()
        while 100 <= self.status < 200 and self.status != SWITCHING_PROTOCOLS:
            self.headers = self.msg = None  # type: ignore[assignment]  # as it is before the head is read
            super().begin()


def silent(server: socket.socket) -> bool:
    """Returns whether nothing can be read from a nonblocking socket, neither bytes nor its end."""
    try:
        socket.socket.recv(server, 1, socket.MSG_PEEK)  # the `recv` of an encrypted socket takes no flags
    except BlockingIOError:
        return True
    except OSError:
        pass
    return False
