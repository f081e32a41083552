"""What is not sampled makes no spans, and a collector that is away costs nothing but its spans."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator

import psutil
import pytest

from firmq.shared.config import collector as destinations
from firmq.shared.config.collector import Destination, announce, destination_of
from firmq.shared.config.settings import load
from firmq.shared.domain.task import TaskState
from firmq.shared.domain.traceparent import Subject, is_sampled
from firmq.shared.errors import SettingsError
from firmq.shared.observability.tracing import Tracing
from tests.support.collector import Collector, mute
from tests.support.figures import judge_since
from tests.support.harness import System, wait_until
from tests.support.keys import keys

TRACE = "0af7651916cd43dd8448eb211c80319c"
SAMPLED = {"traceparent": f"00-{TRACE}-b7ad6b7169203331-01"}
SUBJECT = Subject(id="t1", type="process", queue="normal")
LOST = "traces are lost"


@pytest.fixture
def collector() -> Iterator[Collector]:
    running = Collector()
    yield running
    running.stop()


@pytest.fixture(autouse=True)
def nothing_set(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_PROTOCOL", "OTEL_TRACES_SAMPLER"):
        monkeypatch.delenv(name, raising=False)


def test_a_trace_that_is_not_sampled_makes_no_spans(system: System, collector: Collector) -> None:
    system.start_worker(**collector.environment)
    system.ended(system.submit("noop", meta={"traceparent": f"00-{TRACE}-b7ad6b7169203331-00"}))
    system.ended(system.submit("noop"))
    sampled = system.submit("noop", meta=SAMPLED)
    system.ended(sampled)
    [span] = collector.wait_for("process noop")
    assert span.about["messaging.message.id"] == sampled


def test_corrupt_metadata_affects_its_own_task_only(system: System, collector: Collector) -> None:
    worker = system.start_worker(**collector.environment, MAX_RETRIES="0")
    for meta in ('{"traceparent": 7}', '{"traceparent": "01"}', '{"traceparent": "00-1-1-1"}', '["x"]', "{"):
        task_id = system.submit("noop", delay=None)
        system.ended(task_id)
        system.redis.hset(keys.rq_job(task_id), mapping={"meta": meta, "state": "failed"})
        system.redis.zrem(keys.ended("completed"), task_id)
        system.redis.zadd(keys.ended("failed"), {task_id: 1})
        system.dead_letters.requeue(task_id)
        system.ended(task_id)
    assert worker.poll() is None
    system.ended(system.submit("noop", meta=SAMPLED))
    collector.wait_for("process noop")


# --- a collector that is away ------------------------------------------------------------------------------------


def test_a_dead_port_neither_stops_tasks_nor_floods_the_log(system: System) -> None:
    worker = system.start_worker(OTEL_EXPORTER_OTLP_ENDPOINT="http://127.0.0.1:1", WORKER_EXECUTORS="2")
    system.submit_many([("noop", "null")] * 1500, meta=SAMPLED)
    assert system.all_ended()[TaskState.COMPLETED] == 1500
    wait_until(lambda: LOST in system.logs(), "it is said")
    worker.terminate()
    assert worker.wait(60) == 0
    assert system.logs().count(LOST) == 1, "one line, not one for each batch and each executor"


def test_an_unresponsive_collector_delays_nothing(system: System) -> None:
    with mute() as address:
        worker = system.start_worker(OTEL_EXPORTER_OTLP_ENDPOINT=address, WORKER_EXECUTORS="2")
        system.submit_many([("noop", "null")] * 3000, meta=SAMPLED)
        assert system.all_ended()[TaskState.COMPLETED] == 3000
        before = psutil.Process(worker.pid).memory_info().rss
        for _ in range(3):
            system.submit_many([("noop", "null")] * 3000, meta=SAMPLED)
            assert system.all_ended()[TaskState.COMPLETED] % 3000 == 0
        grown = psutil.Process(worker.pid).memory_info().rss - before
        assert grown < 24 << 20, f"{grown >> 20} MiB more after 18,000 spans that nobody took"
        asked_at = time.monotonic()
        worker.terminate()
        assert worker.wait(60) == 0
        judge_since("end of a worker whose collector does not answer", asked_at, 10)
    assert system.logs().count(LOST) <= 1


def test_a_collector_that_is_killed_in_the_middle_and_comes_back_is_used_again(
    system: System, collector: Collector
) -> None:
    system.start_worker(**collector.environment)
    system.submit_many([("noop", "null")] * 200, meta=SAMPLED)
    collector.wait_for("process noop", 1)
    collector.stop()
    system.submit_many([("noop", "null")] * 1000, meta=SAMPLED)
    assert system.all_ended()[TaskState.COMPLETED] == 1200
    again = Collector(port=collector.port)
    try:
        system.ended(system.submit("echo", "1", meta=SAMPLED))
        again.wait_for("process echo", 1, seconds=30)
    finally:
        again.stop()


# --- where a trace begins ----------------------------------------------------------------------------------------


def test_a_submission_begins_a_trace_or_joins_the_one_it_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
    tracing = Tracing("gateway", load({"APP_VERSION": "a1b2c3d"}))
    assert tracing.provider is not None
    assert tracing.provider.resource.attributes["service.version"] == "a1b2c3d"
    with tracing.sending(SUBJECT, None) as fresh:
        assert is_sampled(fresh)
    with tracing.sending(SUBJECT, SAMPLED["traceparent"]) as joined:
        assert joined is not None
        assert joined.split("-")[1] == TRACE
        assert joined.split("-")[2] != "b7ad6b7169203331"
    quiet = f"00-{TRACE}-b7ad6b7169203331-00"
    with tracing.sending(SUBJECT, quiet) as travelling:
        assert travelling == quiet
    tracing.stop(0.1)


def test_without_a_collector_a_few_traces_a_second_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    tracing = Tracing("gateway", load({"TRACE_LOCALLY": "true"}))
    assert tracing.provider is not None
    assert "service.version" not in tracing.provider.resource.attributes
    assert sum(tracing.decide(None) for _ in range(1000)) in range(1, 30)
    assert tracing.decide(SAMPLED["traceparent"])
    assert not tracing.decide(f"00-{TRACE}-b7ad6b7169203331-00")


def test_the_sampler_of_the_environment_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "parentbased_traceidratio")
    monkeypatch.setenv("OTEL_TRACES_SAMPLER_ARG", "0.1")
    tracing = Tracing("gateway", load({}))
    assert 20 < sum(tracing.decide(None) for _ in range(1000)) < 300
    tracing.stop(0.1)


# --- where spans go ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "protocol", "expected"),
    [
        ({}, "", None),
        ({}, "grpc", None),
        ({"JAEGER_HOST": "jaeger"}, "", Destination("http://jaeger:4318/v1/traces", "http/protobuf")),
        ({"JAEGER_HOST": "jaeger"}, "grpc", Destination("http://jaeger:4317", "grpc")),
        (
            {"JAEGER_HOST": "jaeger", "JAEGER_PORT": "6831"},
            "",
            Destination("http://jaeger:4318/v1/traces", "http/protobuf"),
        ),
        ({"JAEGER_HOST": "jaeger", "JAEGER_PORT": "6831"}, "grpc", Destination("http://jaeger:4317", "grpc")),
        ({"JAEGER_HOST": "jaeger", "JAEGER_PORT": "4317"}, "", Destination("http://jaeger:4317", "grpc")),
        (
            {"JAEGER_HOST": "jaeger", "JAEGER_PORT": "14318"},
            "",
            Destination("http://jaeger:14318/v1/traces", "http/protobuf"),
        ),
    ],
)
def test_jaegers_host_alone_means_otlp_on_that_host(
    settings: dict[str, str], protocol: str, expected: Destination | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", protocol)
    assert destination_of(load(settings)) == expected


def test_the_port_of_jaegers_agent_is_explained_in_one_line(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        announce(load({"JAEGER_HOST": "jaeger", "JAEGER_PORT": "6831"}))
    [line] = caplog.messages
    assert "JAEGER_PORT=6831" in line
    assert "http://jaeger:4318/v1/traces" in line


def test_grpc_that_is_not_installed_is_one_line_with_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(destinations, "find_spec", lambda name: None)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")
    with pytest.raises(
        SettingsError, match=r"^OTEL_EXPORTER_OTLP_PROTOCOL requests gRPC.*pip install 'firmq\[grpc\]'.*$"
    ):
        destination_of(load({"JAEGER_HOST": "jaeger"}))


def test_an_unknown_protocol_ends_the_process_with_status_2(system: System) -> None:
    process = system.start("worker", OTEL_EXPORTER_OTLP_ENDPOINT="http://x", OTEL_EXPORTER_OTLP_PROTOCOL="http/json")
    assert process.wait(60) == 2
    assert "OTEL_EXPORTER_OTLP_PROTOCOL: must be grpc or http/protobuf, got 'http/json'" in system.logs()
