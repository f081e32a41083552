"""`python -m tests.labs.bench.sink PORT`: a collector of traces that takes everything and keeps nothing."""

from __future__ import annotations

import sys
from http.server import BaseHTTPRequestHandler, HTTPServer


class Sink(BaseHTTPRequestHandler):
    """Answers 200 to whatever is posted."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # its name is the base class's
        """Nobody reads it."""


if __name__ == "__main__":
    HTTPServer(("127.0.0.1", int(sys.argv[1])), Sink).serve_forever()
