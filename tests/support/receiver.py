"""A receiver of webhooks: keeps what comes, and answers what a test wants."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

SECRET = "whsec_" + base64.b64encode(b"a secret of at least 24 bytes").decode()


@dataclass
class Receiver:
    """What has come so far: headers and bodies. `answers` (status, headers, body) are used up one by one; then 204."""

    port: int = 0
    got: list[tuple[dict[str, str], bytes]] = field(default_factory=list)
    answers: list[tuple[int, dict[str, str], bytes]] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/hook"

    def bodies(self) -> list[Any]:
        return [json.loads(body) for _, body in self.got]


def genuine(headers: dict[str, str], body: bytes, secret: str = SECRET) -> bool:
    """What a receiver does to know who sent it, after the convention and with nothing of ours."""
    key = base64.b64decode(secret.removeprefix("whsec_"))
    signed = headers["webhook-id"].encode() + b"." + headers["webhook-timestamp"].encode() + b"." + body
    expected = "v1," + base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()
    return any(hmac.compare_digest(expected, each) for each in headers["webhook-signature"].split(" "))


@contextmanager
def receiving(port: int = 0) -> Iterator[Receiver]:
    """A receiver on this machine."""
    receiver = Receiver()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            receiver.got.append(({name.lower(): value for name, value in self.headers.items()}, body))
            status, headers, said = receiver.answers.pop(0) if receiver.answers else (204, {}, b"")
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(said)

        def log_message(self, *about: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    receiver.port = server.server_port
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield receiver
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
