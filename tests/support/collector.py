"""A collector for tests, which takes spans by OTLP over HTTP or gRPC, and one that never answers."""

from __future__ import annotations

import gzip
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import grpc
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2_grpc
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)

from tests.support.harness import wait_until

KINDS = ("unspecified", "internal", "server", "client", "producer", "consumer")


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """A span as it arrived; ids in hexadecimal digits, `parent` is "" for none, instants in nanoseconds."""

    name: str
    trace: str
    id: str
    parent: str
    kind: str
    about: dict[str, Any]
    links: tuple[tuple[str, str, str], ...]
    events: tuple[tuple[str, dict[str, Any]], ...]
    error: str | None
    start: int
    end: int
    service: str
    instance: str
    scope: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LogLine:
    """A log line as it arrived; `trace` is "" for none."""

    service: str
    instance: str
    logger: str
    level: str
    text: str
    trace: str
    about: dict[str, Any]
    resource: dict[str, Any]


@dataclass
class Collector:
    """What was sent, and a server that takes it."""

    protocol: str = "http/protobuf"
    port: int = 0
    spans: list[Span] = field(default_factory=list)
    lines: list[LogLine] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._stop: Callable[[], None] = lambda: None
        self.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def environment(self) -> dict[str, str]:
        """What a part has to be started with."""
        return {"OTEL_EXPORTER_OTLP_ENDPOINT": self.url, "OTEL_EXPORTER_OTLP_PROTOCOL": self.protocol}

    def start(self) -> None:
        (self._start_grpc if self.protocol == "grpc" else self._start_http)()

    def stop(self) -> None:
        self._stop()

    def named(self, name: str) -> list[Span]:
        """The spans of this name in the order in which they began."""
        return sorted((span for span in list(self.spans) if span.name == name), key=lambda span: span.start)

    def wait_for(self, name: str, count: int = 1, seconds: float = 60.0) -> list[Span]:
        """So many spans of this name."""

        def found() -> list[Span] | None:
            spans = self.named(name)
            return spans if len(spans) >= count else None

        spans: list[Span] = wait_until(found, f"{count} × {name} arrived", seconds)
        return spans

    def take(self, request: Any) -> None:
        for resource in request.resource_spans:
            about = _values(resource.resource.attributes)
            for scope in resource.scope_spans:
                self.spans += [_span(each, about, scope.scope.name) for each in scope.spans]

    def take_lines(self, request: Any) -> None:
        for resource in request.resource_logs:
            about = _values(resource.resource.attributes)
            for scope in resource.scope_logs:
                self.lines += [
                    LogLine(
                        service=about["service.name"],
                        instance=about.get("service.instance.id", ""),
                        logger=scope.scope.name,
                        level=each.severity_text,
                        text=each.body.string_value,
                        trace=each.trace_id.hex(),
                        about=_values(each.attributes),
                        resource=about,
                    )
                    for each in scope.log_records
                ]

    def _start_http(self) -> None:
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                text = gzip.decompress(body) if self.headers.get("Content-Encoding") == "gzip" else body
                if self.path.endswith("/v1/logs"):  # Loki has it below /otlp
                    collector.take_lines(ExportLogsServiceRequest.FromString(text))
                else:
                    collector.take(ExportTraceServiceRequest.FromString(text))
                self.send_response(200)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002
                pass

        server = ThreadingHTTPServer(("127.0.0.1", self.port), Handler)
        self.port = server.server_address[1]
        threading.Thread(target=server.serve_forever, daemon=True).start()

        def stop() -> None:
            server.shutdown()
            server.server_close()

        self._stop = stop

    def _start_grpc(self) -> None:
        collector = self

        class Service(trace_service_pb2_grpc.TraceServiceServicer):
            def Export(self, request: Any, context: object) -> Any:  # noqa: N802  # gRPC's name
                collector.take(request)
                return ExportTraceServiceResponse()

        server = grpc.server(ThreadPoolExecutor(4))
        trace_service_pb2_grpc.add_TraceServiceServicer_to_server(Service(), server)  # type: ignore[no-untyped-call]
        self.port = server.add_insecure_port(f"127.0.0.1:{self.port}")
        server.start()
        self._stop = lambda: server.stop(0).wait()


@contextmanager
def mute() -> Iterator[str]:
    """The address of a collector that takes connections and never answers."""
    listener = socket.create_server(("127.0.0.1", 0), backlog=128)
    kept: list[socket.socket] = []

    def accept() -> None:
        try:
            while True:
                kept.append(listener.accept()[0])
        except OSError:
            return

    threading.Thread(target=accept, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        for each in kept:
            each.close()


def _span(span: Any, resource: dict[str, Any], scope: str) -> Span:
    return Span(
        name=span.name,
        trace=span.trace_id.hex(),
        id=span.span_id.hex(),
        parent=span.parent_span_id.hex(),
        kind=KINDS[span.kind],
        about=_values(span.attributes),
        links=tuple(
            (each.trace_id.hex(), each.span_id.hex(), _values(each.attributes).get("firmq.link", ""))
            for each in span.links
        ),
        events=tuple((each.name, _values(each.attributes)) for each in span.events),
        error=span.status.message if span.status.code == 2 else None,
        start=span.start_time_unix_nano,
        end=span.end_time_unix_nano,
        service=str(resource.get("service.name")),
        instance=str(resource.get("service.instance.id")),
        scope=scope,
    )


def _values(attributes: Any) -> dict[str, Any]:
    return {each.key: getattr(each.value, each.value.WhichOneof("value")) for each in attributes}
