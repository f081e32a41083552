"""The trace of a submission travels with its task, and a collector that is away costs nothing but its spans."""

from __future__ import annotations

import gzip
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from shared.settings import load
from shared.tasks import TaskState
from shared.telemetry import Tracing, is_sampled, traces_endpoint
from tests.harness import System, wait_until

TRACE = "0af7651916cd43dd8448eb211c80319c"


@dataclass
class Receiver:
    """Takes spans by OTLP over HTTP."""

    spans: list[Span] = field(default_factory=list)

    def __post_init__(self) -> None:
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                text = gzip.decompress(body) if self.headers.get("Content-Encoding") == "gzip" else body
                request = ExportTraceServiceRequest.FromString(text)
                for resource in request.resource_spans:
                    for scope in resource.scope_spans:
                        receiver.spans.extend(scope.spans)
                self.send_response(200)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.server_address[1]}"

    def stop(self) -> None:
        self.server.shutdown()
        self.server.server_close()


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    running = Receiver()
    yield running
    running.stop()


def test_every_attempt_is_a_span_of_the_trace_that_the_task_carries(system: System, receiver: Receiver) -> None:
    system.start_worker(OTEL_EXPORTER_OTLP_ENDPOINT=receiver.url, MAX_RETRIES="1")
    system.start_housekeeper()
    parent = "b7ad6b7169203331"
    task_id = system.submit("fail", "{}", meta={"traceparent": f"00-{TRACE}-{parent}-01"})
    task = system.ended(task_id)
    spans = wait_until(lambda: receiver.spans if len(receiver.spans) == 2 else None, "both spans arrived")
    assert {span.trace_id.hex() for span in spans} == {TRACE}
    assert {span.parent_span_id.hex() for span in spans} == {parent}
    assert {span.name for span in spans} == {"process fail"}
    assert {span.kind for span in spans} == {Span.SPAN_KIND_CONSUMER}
    assert all(span.events[0].name == "exception" for span in spans)
    assert [attempt.trace_id for attempt in task.attempts] == [TRACE, TRACE]


def test_a_trace_that_is_not_sampled_makes_no_spans(system: System, receiver: Receiver) -> None:
    system.start_worker(OTEL_EXPORTER_OTLP_ENDPOINT=receiver.url)
    system.ended(system.submit("noop", meta={"traceparent": f"00-{TRACE}-b7ad6b7169203331-00"}))
    system.ended(system.submit("noop"))
    sampled = system.submit("noop", meta={"traceparent": f"00-{TRACE}-b7ad6b7169203331-01"})
    system.ended(sampled)
    wait_until(lambda: receiver.spans, "the sampled one arrived")
    assert len(receiver.spans) == 1


def test_a_collector_that_is_away_neither_stops_tasks_nor_floods_the_log(system: System) -> None:
    worker = system.start_worker(OTEL_EXPORTER_OTLP_ENDPOINT="http://127.0.0.1:1")
    meta = {"traceparent": f"00-{TRACE}-b7ad6b7169203331-01"}
    system.submit_many([("noop", "null")] * 500, meta=meta)
    assert system.all_ended()[TaskState.COMPLETED] == 500
    wait_until(lambda: "trace_exporter" in system.logs(), "it is said")
    worker.terminate()
    assert worker.wait(6) == 0
    assert system.logs().count("trace_exporter") <= 2, "one line from each executor"


def test_a_submission_begins_a_trace_or_joins_the_one_it_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
    tracing = Tracing("gateway", load({}))
    with tracing.sending("process", None) as fresh:
        assert is_sampled(fresh)
    with tracing.sending("process", f"00-{TRACE}-b7ad6b7169203331-01") as joined:
        assert joined is not None
        assert joined.split("-")[1] == TRACE
        assert joined.split("-")[2] != "b7ad6b7169203331"
    tracing.stop(0.1)


@pytest.mark.parametrize(
    ("settings", "endpoint"),
    [
        ({}, None),
        ({"JAEGER_HOST": "jaeger"}, "http://jaeger:4318/v1/traces"),
        ({"JAEGER_HOST": "jaeger", "JAEGER_PORT": "6831"}, "http://jaeger:4318/v1/traces"),
        ({"JAEGER_HOST": "jaeger", "JAEGER_PORT": "14318"}, "http://jaeger:14318/v1/traces"),
    ],
)
def test_jaegers_host_alone_means_otlp_on_that_host(
    settings: dict[str, str], endpoint: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OTEL_EXPORTER_OTLP_ENDPOINT", raising=False)
    assert traces_endpoint(load(settings)) == endpoint
