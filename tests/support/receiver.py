"""Receivers of HTTP calls: one keeps what comes and answers what a test wants, others do not answer as they should."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

SECRET = "whsec_" + base64.b64encode(b"a secret of at least 24 bytes").decode()


@dataclass
class Receiver:
    """What has come so far: headers and bodies, and in `lines` methods and paths.

    `answers` (status, headers, body) are used up one by one; then 204.
    """

    port: int = 0
    secure: bool = False
    lines: list[str] = field(default_factory=list)
    got: list[tuple[dict[str, str], bytes]] = field(default_factory=list)
    answers: list[tuple[int, dict[str, str], bytes]] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"http{'s' if self.secure else ''}://127.0.0.1:{self.port}/hook"

    def bodies(self) -> list[Any]:
        return [json.loads(body) for _, body in self.got]


def genuine(headers: dict[str, str], body: bytes, secret: str = SECRET) -> bool:
    """What a receiver does to know who sent it, after the convention and with nothing of ours."""
    key = base64.b64decode(secret.removeprefix("whsec_"))
    signed = headers["webhook-id"].encode() + b"." + headers["webhook-timestamp"].encode() + b"." + body
    expected = "v1," + base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()
    return any(hmac.compare_digest(expected, each) for each in headers["webhook-signature"].split(" "))


@contextmanager
def receiving(port: int = 0, tls: ssl.SSLContext | None = None) -> Iterator[Receiver]:
    """A receiver on this machine."""
    receiver = Receiver(secure=tls is not None)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"] or 0))
            receiver.lines.append(f"{self.command} {self.path}")
            receiver.got.append(({name.lower(): value for name, value in self.headers.items()}, body))
            status, headers, said = receiver.answers.pop(0) if receiver.answers else (204, {}, b"")
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()
            with suppress(OSError):  # a client need not read all
                self.wfile.write(said)

        do_GET = do_HEAD = do_PUT = do_PATCH = do_DELETE = do_OPTIONS = do_POST  # noqa: N815  # the base class asks for these

        def log_message(self, *about: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    if tls:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    receiver.port = server.server_port
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield receiver
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@contextmanager
def saying(words: bytes) -> Iterator[int]:
    """A server that says the same to everyone and hangs up; the port."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            with suppress(OSError):
                while True:
                    with server.accept()[0] as each:
                        each.recv(1 << 16)
                        each.sendall(words)

        threading.Thread(target=answer, daemon=True).start()
        yield server.getsockname()[1]
        server.shutdown(socket.SHUT_RDWR)


@contextmanager
def dripping(before: bytes) -> Iterator[int]:
    """A server whose answer never ends, a byte now and then, to one client; the port."""
    stop = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            connection, _ = server.accept()
            with connection, suppress(OSError):
                connection.sendall(before)
                while not stop.wait(0.02):
                    connection.sendall(b"x")

        thread = threading.Thread(target=answer)
        thread.start()
        try:
            yield server.getsockname()[1]
        finally:
            stop.set()
            thread.join()
