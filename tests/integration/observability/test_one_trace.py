"""One trace tells a task's whole life: over the running parts, with a collector that speaks HTTP or gRPC."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from firmq.shared.domain.task import TaskState
from firmq.shared.domain.traceparent import attempt_span, dead_letter_span
from tests.support.collector import Collector, Span
from tests.support.harness import System, free_port, wait_until
from tests.support.keys import keys

TRACE, CALLER = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
SAMPLED = {"traceparent": f"00-{TRACE}-{CALLER}-01"}


BOTH_PROTOCOLS = pytest.mark.parametrize("collector", ["http/protobuf", "grpc"], indirect=True)
"""For those tests in which, together, every part of the product sends."""


@pytest.fixture
def collector(request: pytest.FixtureRequest) -> Iterator[Collector]:
    """What travels does not depend on the protocol, so most tests are run with one."""
    running = Collector(getattr(request, "param", "http/protobuf"))
    yield running
    running.stop()


@pytest.fixture
def http(system: System, collector: Collector) -> Iterator[httpx.Client]:
    """A gateway; everything that is started sends its spans to the collector."""
    system.environment.update(collector.environment)
    port = free_port()
    system.start("gateway", GATEWAY_PORT=str(port), GATEWAY_PROCESSES="1", LOG_FORMAT="json")
    with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60) as client:
        wait_until(lambda: _ready(client), "the gateway answers", 60)
        yield client


def _ready(client: httpx.Client) -> bool:
    try:
        return client.get("/health/live").status_code == 200
    except httpx.TransportError:
        return False


def submit(http: httpx.Client, task_type: str, data: Any, **more: Any) -> str:
    wait_until(lambda: task_type in http.get("/types").text, "the type is known")
    answer = http.post("/tasks", json={"type": task_type, "data": data, **more}, headers=SAMPLED)
    assert answer.status_code == 202, answer.text
    return str(answer.json()["task_id"])


def the_one(spans: list[Span]) -> Span:
    assert len(spans) == 1, spans
    return spans[0]


def attempt_id(task_id: str, attempt: int) -> str:
    return f"{attempt_span(task_id, attempt):016x}"


@BOTH_PROTOCOLS
def test_a_task_that_fails_twice_and_completes_is_one_trace(
    system: System, collector: Collector, http: httpx.Client, tmp_path: Path
) -> None:
    system.start_worker()
    system.start_housekeeper()
    task_id = submit(http, "flaky", {"file": str(tmp_path / "runs"), "failures": 2})
    assert system.ended(task_id).summary.state is TaskState.COMPLETED
    attempts = collector.wait_for("process flaky", 3)
    waits = collector.wait_for("wait flaky", 3)
    send = the_one(collector.wait_for("send flaky"))
    request = the_one([span for span in collector.wait_for("POST /tasks") if span.trace == TRACE])
    stored = [span for span in collector.spans if span.parent == send.id and span.kind == "client"]

    assert {span.trace for span in (*attempts, *waits, send, request)} == {TRACE}
    assert (request.parent, request.kind, request.service) == (CALLER, "server", "firmq-gateway")
    assert (send.parent, send.kind) == (request.id, "producer")
    assert {span.parent for span in (*attempts, *waits)} == {send.id}
    assert [span.id for span in attempts] == [attempt_id(task_id, number) for number in (1, 2, 3)]
    assert [span.links for span in attempts] == [
        (),
        ((TRACE, attempts[0].id, "previous attempt"),),
        ((TRACE, attempts[1].id, "previous attempt"),),
    ]
    assert [span.name for span in stored][:1] == ["EVALSHA"], "what it asked of Redis is under it"
    assert [span.about["firmq.task.outcome"] for span in attempts] == ["failed", "failed", "completed"]
    assert [span.about.get("error.type") for span in attempts] == ["ConnectionError", "ConnectionError", None]
    assert attempts[0].error == "ConnectionError: run 1 fails"
    assert attempts[0].events[0][1]["exception.message"] == "run 1 fails"
    for number, (wait, attempt) in enumerate(zip(waits, attempts, strict=True), 1):
        assert wait.end == attempt.start, "the wait ends when the attempt begins"
        assert (wait.kind, attempt.kind, attempt.service) == ("internal", "consumer", "firmq-worker")
        expected = {
            "messaging.system": "firmq",
            "messaging.operation.name": "process",
            "messaging.operation.type": "process",
            "messaging.destination.name": "normal",
            "messaging.message.id": task_id,
            "messaging.client.id": attempt.instance,
            "firmq.task.type": "flaky",
            "firmq.task.attempt": number,
        }
        assert expected.items() <= attempt.about.items()
    assert send.about == {
        "messaging.system": "firmq",
        "messaging.operation.name": "send",
        "messaging.operation.type": "send",
        "messaging.destination.name": "normal",
        "messaging.message.id": task_id,
        "firmq.task.type": "flaky",
    }
    assert [attempt.trace_id for attempt in system.records.get(task_id).attempts] == [TRACE] * 3


@BOTH_PROTOCOLS
def test_an_attempt_whose_worker_was_killed_is_told_by_the_housekeeper(
    system: System, collector: Collector, http: httpx.Client, tmp_path: Path
) -> None:
    system.start_housekeeper()
    first = system.start_worker(WORKER_EXECUTORS="1")
    mark = tmp_path / "runs"
    task_id = submit(http, "note", {"file": str(mark), "seconds": 60.0}, timeout=90)
    wait_until(mark.exists, "it runs")
    first.send_signal(signal.SIGKILL)
    first.wait()
    system.redis.hset(keys.rq_job(task_id), "data", _shorter(system, task_id))
    system.start_worker(WORKER_EXECUTORS="1")
    assert system.ended(task_id).summary.state is TaskState.COMPLETED
    lost, done = collector.wait_for("process note", 2)
    assert {lost.trace, done.trace} == {TRACE}
    assert (lost.service, done.service) == ("firmq-housekeeper", "firmq-worker")
    assert (lost.about["firmq.task.outcome"], lost.about["error.type"]) == ("lost", "LeaseLost")
    assert lost.parent == done.parent == the_one(collector.wait_for("send note")).id
    assert (lost.id, done.id) == (attempt_id(task_id, 1), attempt_id(task_id, 2))
    assert done.links == ((TRACE, lost.id, "previous attempt"),)
    assert [attempt.trace_id for attempt in system.records.get(task_id).attempts] == [TRACE, TRACE]


def _shorter(system: System, task_id: str) -> bytes:
    data = system.redis.hget(keys.rq_job(task_id), "data")
    assert isinstance(data, bytes)
    return data.replace(b"60.0", b"0.0")


def test_a_kill_between_attempts_leaves_the_trace_whole(
    system: System, collector: Collector, http: httpx.Client, tmp_path: Path
) -> None:
    system.start_housekeeper()
    first = system.start_worker(INITIAL_RETRY_DELAY="3600", MAX_RETRY_DELAY="3600")
    task_id = submit(http, "flaky", {"file": str(tmp_path / "runs"), "failures": 2})
    collector.wait_for("process flaky")
    first.send_signal(signal.SIGKILL)
    first.wait()
    system.queues.run_now(task_id)
    system.start_worker()
    assert system.ended(task_id).summary.state is TaskState.COMPLETED
    attempts = collector.wait_for("process flaky", 3)
    assert [span.id for span in attempts] == [attempt_id(task_id, number) for number in (1, 2, 3)]
    assert {span.trace for span in attempts} == {TRACE}
    assert {span.parent for span in attempts} == {the_one(collector.wait_for("send flaky")).id}
    assert [len(span.links) for span in attempts] == [0, 1, 1]
    assert len({span.instance for span in attempts}) == 2, "two workers ran it"


def test_a_replay_continues_the_trace_and_links_its_request(
    system: System, collector: Collector, http: httpx.Client, tmp_path: Path
) -> None:
    system.start_worker(MAX_RETRIES="1")
    system.start_housekeeper()
    runs = tmp_path / "runs"
    task_id = submit(http, "flaky", {"file": str(runs), "failures": 2})
    assert system.ended(task_id).summary.state is TaskState.FAILED
    dead = the_one(collector.wait_for("dead-letter flaky"))
    assert (dead.trace, dead.parent) == (TRACE, attempt_id(task_id, 2))
    assert dead.id == f"{dead_letter_span(task_id, 2):016x}"
    assert (dead.kind, dead.about["messaging.operation.type"]) == ("client", "settle")

    assert http.post(f"/dlq/failed-tasks/{task_id}/retry").status_code == 202
    assert system.ended(task_id).summary.state is TaskState.COMPLETED
    replay = the_one(collector.wait_for("replay flaky"))
    assert replay.trace != TRACE, "who asks for a replay is in a trace of their own"
    assert replay.links == ((TRACE, dead.id, "dead letter"),)
    assert replay.about["messaging.message.id"] == task_id
    *_, last = collector.wait_for("process flaky", 3)
    assert (last.trace, last.id) == (TRACE, attempt_id(task_id, 3))
    assert last.links == ((replay.trace, replay.id, "replay"),)
    meta = json.loads(system.redis.hget(keys.rq_job(task_id), "meta") or b"")
    assert meta["traceparent"].split("-")[1] == TRACE


def test_a_crash_of_an_executor_is_an_attempt_like_others(
    system: System, collector: Collector, http: httpx.Client
) -> None:
    system.start_worker(MAX_CRASHES="2")
    system.start_housekeeper()
    task_id = submit(http, "crash", {"how": "segfault"})
    assert system.ended(task_id).summary.state is TaskState.FAILED
    first, second = collector.wait_for("process crash", 2)
    assert [span.about["firmq.task.outcome"] for span in (first, second)] == ["crashed", "crashed"]
    assert [span.id for span in (first, second)] == [attempt_id(task_id, 1), attempt_id(task_id, 2)]
    assert the_one(collector.wait_for("dead-letter crash")).parent == second.id
    assert [attempt.trace_id for attempt in system.records.get(task_id).attempts] == [TRACE, TRACE]


def test_in_a_batch_every_task_keeps_its_own_parent(system: System, collector: Collector, http: httpx.Client) -> None:
    worker = system.start_worker(WORKER_EXECUTORS="1")
    wait_until(lambda: "noop" in http.get("/types").text, "the type is known")
    os.kill(worker.pid, signal.SIGSTOP)  # so that it claims all of them at once
    tasks = [{"type": "noop", "data": number} for number in range(5)]
    answer = http.post("/tasks/batch", json={"tasks": tasks}, headers=SAMPLED).json()
    alone = submit(http, "echo", 1)
    os.kill(worker.pid, signal.SIGCONT)
    created = collector.wait_for("create noop", 5)
    processed = collector.wait_for("process noop", 5)
    request = the_one(collector.wait_for("POST /tasks/batch"))
    assert {span.parent for span in created} == {request.id}
    creator = {span.about["messaging.message.id"]: span.id for span in created}
    assert creator.keys() == {item["task_id"] for item in answer["items"]}
    assert {span.about["messaging.message.id"]: span.parent for span in processed} == creator
    stored = the_one(collector.wait_for("send batch"))
    assert (stored.parent, stored.about["messaging.batch.message_count"]) == (request.id, 5)
    other = the_one(collector.wait_for("process echo"))
    assert (other.about["messaging.message.id"], other.parent) == (alone, the_one(collector.wait_for("send echo")).id)


def test_calls_and_commands_of_a_handler_are_under_its_attempt_and_carry_the_trace_on(
    system: System, collector: Collector, http: httpx.Client
) -> None:
    system.start_worker()
    on_reply: list[str | None] = []
    with _listener(on_reply) as address:
        own = {"redis_url": system.url.partition("?")[0], "key": f"{keys.prefix}firmq:calls"}
        task_id = submit(http, "calls", {"url": f"{address}/prices?key=secret", **own})
        system.ended(task_id)
        attempt = the_one(collector.wait_for("process calls"))
        calls = collector.wait_for("GET", 3)
        commands = [span for span in collector.wait_for("STRLEN", 1) if span.parent == attempt.id]
        assert {span.parent for span in calls} == {attempt.id}
        assert len(commands) == 1
        assert [header.split("-")[1:3] for header in on_reply if header] == [[TRACE, span.id] for span in calls]
        kept = system.records.get(task_id).attempts[0].spans
        assert [span.name for span in kept] == ["GET 127.0.0.1/prices"] * 3 + ["STRLEN"]

        on_reply.clear()
        unsampled = {"traceparent": f"00-{TRACE}-{CALLER}-00"}
        about = {"type": "calls", "data": {"url": address, **own}}
        quiet = http.post("/tasks", json=about, headers=unsampled).json()["task_id"]
        assert system.ended(quiet).attempts[0].spans == ()
        assert [header and header.split("-")[1::2] for header in on_reply] == [[TRACE, "00"]] * 3, "not to be sampled"
    assert len(collector.named("process calls")) == 1


def test_spans_that_a_handler_makes_are_children_of_its_attempt(
    system: System, collector: Collector, http: httpx.Client
) -> None:
    system.start_worker()
    task_id = submit(http, "own-spans", {})
    kept = system.ended(task_id).attempts[0].spans
    attempt = the_one(collector.wait_for("process own-spans"))
    render, printed = the_one(collector.wait_for("render")), the_one(collector.wait_for("print"))
    assert (render.trace, render.parent, render.about["page"]) == (TRACE, attempt.id, 3)
    assert (printed.trace, printed.parent) == (TRACE, render.id)
    assert [span.name for span in kept] == ["print", "render"]
    quiet = http.post(
        "/tasks", json={"type": "own-spans", "data": {}}, headers={"traceparent": f"00-{TRACE}-{CALLER}-00"}
    )
    assert system.ended(quiet.json()["task_id"]).attempts[0].spans == ()
    assert len(collector.named("render")) == 1


def _listener(on_reply: list[str | None]) -> Any:
    """A neighbour that handlers call; notes the `traceparent` of each request."""
    import threading
    from contextlib import contextmanager
    from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            on_reply.append(self.headers.get("traceparent"))
            self.send_response(204)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            pass

    @contextmanager
    def listen() -> Iterator[str]:
        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        server.server_close()

    return listen()


@BOTH_PROTOCOLS
def test_a_schedule_begins_a_trace_and_housekeeping_tells_what_it_did(
    system: System, collector: Collector, http: httpx.Client
) -> None:
    system.start_worker()
    system.start_housekeeper(HOUSEKEEPER_DISTRIBUTED_EXECUTION_INSTANCE_ID="hk-1")
    wait_until(lambda: "noop" in http.get("/types").text, "the type is known")
    assert http.put("/schedules/often", json={"type": "noop", "interval": 1}).status_code in (200, 201)
    fired = collector.wait_for("send noop")[0]
    assert (fired.service, fired.parent, fired.kind) == ("firmq-housekeeper", "", "producer")
    assert fired.about["firmq.schedule.name"] == "often"
    assert fired.about["firmq.schedule.outcome"] == "fired"
    runs = wait_until(lambda: [each for each in collector.named("process noop") if each.trace == fired.trace], "it ran")
    assert [each.parent for each in runs] == [fired.id]
    round_ = collector.wait_for("housekeeping schedules")[0]
    assert round_.about["firmq.housekeeping.items"] >= 1
    assert round_.instance == "hk-1"
