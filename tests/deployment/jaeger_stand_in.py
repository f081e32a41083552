"""Jaeger where its image is not to be had: takes spans by OTLP over HTTP and shows them as Jaeger's API does.

Runs in the product's own image, which has everything that it needs:
`python jaeger_stand_in.py`, with spans on 4318, the API on 16686 and health on 13133.
"""

from __future__ import annotations

import gzip
import json
import signal
import sys
import threading
from collections import OrderedDict
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

KEPT = 5000
"""Traces, the latest."""

traces: OrderedDict[str, list[dict[str, str]]] = OrderedDict()


def take(body: bytes) -> None:
    """Stores the spans of one request."""
    for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
        names = {each.key: each.value.string_value for each in resource.resource.attributes}
        for scope in resource.scope_spans:
            for span in scope.spans:
                shown = {"operationName": span.name, "service": names.get("service.name", "")}
                traces.setdefault(span.trace_id.hex(), []).append(shown)
    while len(traces) > KEPT:
        traces.popitem(last=False)


class Handler(BaseHTTPRequestHandler):
    """Spans in; one trace, or health, out."""

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        take(gzip.decompress(body) if self.headers.get("Content-Encoding") == "gzip" else body)
        self._answer({})

    def do_GET(self) -> None:
        trace_id = self.path.rpartition("/")[2]
        found = [{"traceID": trace_id, "spans": traces[trace_id]}] if trace_id in traces else []
        self._answer({"data": found, "status": "StatusOK"})

    def _answer(self, content: object) -> None:
        body = json.dumps(content).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # the name is http.server's
        pass


def main() -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))  # the first process of a container has to say so itself
    servers = [ThreadingHTTPServer(("0.0.0.0", port), Handler) for port in (4318, 16686, 13133)]
    for server in servers[1:]:
        threading.Thread(target=server.serve_forever, daemon=True).start()
    servers[0].serve_forever()


if __name__ == "__main__":
    main()
