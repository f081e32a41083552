"""Loki where its image is not to be had: takes lines by OTLP over HTTP and answers a query by the id of a task.

Runs in the product's own image: `python loki_stand_in.py`, on 3100 as Loki does.
"""

from __future__ import annotations

import gzip
import json
import re
import signal
import sys
from collections import deque
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest

lines: deque[tuple[str, dict[str, str], str, str]] = deque(maxlen=50_000)
"""The part, the fields, the instant and the text of each of the latest lines."""


def take(body: bytes) -> None:
    """Stores the lines of one request."""
    for resource in ExportLogsServiceRequest.FromString(body).resource_logs:
        part = next(each.value.string_value for each in resource.resource.attributes if each.key == "service.name")
        for scope in resource.scope_logs:
            for each in scope.log_records:
                fields = {field.key: field.value.string_value for field in each.attributes}
                lines.append((part, fields, str(each.time_unix_nano), each.body.string_value))


def found(query: str) -> list[dict[str, object]]:
    """Returns the streams of `{service_namespace="firmq"} | task_id="..."`."""
    [wanted] = re.findall(r'^\{service_namespace="firmq"\} \| task_id="(.+)"$', query)
    streams: dict[str, list[list[str]]] = {}
    for part, fields, at, text in list(lines):
        if fields.get("task_id") == wanted:
            streams.setdefault(part, []).append([at, text])
    return [{"stream": {"service_name": part}, "values": values} for part, values in streams.items()]


class Handler(BaseHTTPRequestHandler):
    """Lines in, streams out."""

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        take(gzip.decompress(body) if self.headers.get("Content-Encoding") == "gzip" else body)
        self._answer(204, b"")

    def do_GET(self) -> None:
        if self.path == "/ready":
            return self._answer(200, b"ready")
        [query] = parse_qs(urlsplit(self.path).query)["query"]
        return self._answer(200, json.dumps({"status": "success", "data": {"result": found(query)}}).encode())

    def _answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *about: object) -> None:
        pass


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))  # the first process of a container has to say so itself
    ThreadingHTTPServer(("0.0.0.0", 3100), Handler).serve_forever()
