"""The HTTP server of workers and housekeepers: metrics, liveness, readiness."""

from __future__ import annotations

import json
import logging
import socket
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest

log = logging.getLogger(__name__)

CONNECTIONS = 16
"""Maximum connections at a time; each needs a thread and a file."""
WITHIN = 10.0
"""Time limit of a whole request and its response, in seconds, regardless of how its bytes arrive."""
_ROOM_WITHIN = 0.5
"""Seconds to wait for a connection that was closed to make room."""
_REST = 0.1
"""Seconds until the next accept when no more files can be opened; the pending connection would cause a busy loop."""


@dataclass(frozen=True, slots=True)
class Check:
    """The result of a health check, with details."""

    well: bool
    detail: Mapping[str, object]


class MetricsServer:
    """Serves `/metrics`, `/health/live`, `/health/ready` and `/health` in its own threads."""

    def __init__(
        self, host: str, port: int, registry: CollectorRegistry, live: Callable[[], Check], ready: Callable[[], Check]
    ) -> None:
        """Binds the port. Raises OSError when it is in use."""
        checks = {"/health/live": live, "/health/ready": ready, "/health": ready}

        class Handler(BaseHTTPRequestHandler):
            timeout = WITHIN

            def do_GET(self) -> None:
                path = self.path.partition("?")[0]
                if path == "/metrics":
                    self._answer(200, CONTENT_TYPE_LATEST, generate_latest(registry))
                elif path in checks:
                    check = checks[path]()
                    body = {"status": "ok" if check.well else "unavailable", **check.detail}
                    self._answer(200 if check.well else 503, "application/json", json.dumps(body).encode() + b"\n")
                else:
                    self._answer(404, "text/plain", b"Not found: use /metrics, /health/live or /health/ready.\n")

            do_HEAD = do_GET  # noqa: N815  # some load balancers use it

            def _answer(self, status: int, kind: str, body: bytes) -> None:
                self.send_response(status)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # the name is http.server's
                pass  # a scrape every few seconds is not worth a log line

        self.server = Server((host, port), Handler)
        self._thread = threading.Thread(target=self.server.serve_forever, name="probe", daemon=True)

    @property
    def port(self) -> int:
        return int(self.server.server_address[1])

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self.server.shutdown()
        self.server.server_close()


class Server(ThreadingHTTPServer):
    """Serves few connections at a time, each in its own thread and with a time limit.

    When the maximum is reached, the oldest connection is closed. A regular request takes milliseconds, so idle
    connections cannot block health checks.
    """

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler]) -> None:
        self._began: dict[socket.socket, float] = {}
        self._changed = threading.Condition()
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        super().__init__(address, handler)

    def get_request(self) -> tuple[socket.socket, Any]:
        try:
            return super().get_request()
        except OSError:
            time.sleep(_REST)
            raise

    def process_request(self, request: Any, client_address: Any) -> None:
        if self._has_place(request):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def _has_place(self, request: socket.socket) -> bool:
        with self._changed:
            if len(self._began) >= CONNECTIONS:
                _cut(next(iter(self._began)))
                if not self._changed.wait_for(lambda: len(self._began) < CONNECTIONS, _ROOM_WITHIN):
                    return False
            self._began[request] = time.monotonic()
            return True

    def service_actions(self) -> None:
        """Closes connections beyond their time limit; called at least twice a second."""
        late = time.monotonic() - WITHIN
        with self._changed:
            for request, began in self._began.items():
                if began < late:
                    _cut(request)

    def shutdown_request(self, request: Any) -> None:
        # Removed before it is closed: its descriptor may be reused at once, and that file must not be closed.
        with self._changed:
            self._began.pop(request, None)
            self._changed.notify()
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Logs errors, except of closed connections."""
        error = sys.exception()
        if not isinstance(error, OSError):
            log.error("request for metrics or health failed", exc_info=error)


def _cut(request: socket.socket) -> None:
    """Shuts a connection down, which ends the wait of its thread."""
    with suppress(OSError):
        request.shutdown(socket.SHUT_RDWR)
