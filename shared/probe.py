"""The small HTTP server of parts that serve no pages: metrics, liveness, readiness."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest


@dataclass(frozen=True, slots=True)
class Check:
    """An answer to "are you well?": in words, and as yes or no."""

    well: bool
    detail: Mapping[str, object]


class Probe:
    """Serves `/metrics`, `/health/live`, `/health/ready` and `/health` in threads of its own."""

    def __init__(
        self, host: str, port: int, registry: CollectorRegistry, live: Callable[[], Check], ready: Callable[[], Check]
    ) -> None:
        """Raises OSError when the port is taken."""
        checks = {"/health/live": live, "/health/ready": ready, "/health": ready}

        class Handler(BaseHTTPRequestHandler):
            timeout = 10

            def do_GET(self) -> None:
                path = self.path.partition("?")[0]
                if path == "/metrics":
                    self._answer(200, CONTENT_TYPE_LATEST, generate_latest(registry))
                elif path in checks:
                    check = checks[path]()
                    body = {"status": "ok" if check.well else "unavailable", **check.detail}
                    self._answer(200 if check.well else 503, "application/json", json.dumps(body).encode() + b"\n")
                else:
                    self._answer(404, "text/plain", b"Here are /metrics, /health/live and /health/ready.\n")

            def _answer(self, status: int, kind: str, body: bytes) -> None:
                self.send_response(status)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # the name is http.server's
                pass  # a scrape every few seconds is no news

        self.server = ThreadingHTTPServer((host, port), Handler)
        self.server.daemon_threads = True
        self._thread = threading.Thread(target=self.server.serve_forever, name="probe", daemon=True)

    @property
    def port(self) -> int:
        return int(self.server.server_address[1])

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self.server.shutdown()
        self.server.server_close()
