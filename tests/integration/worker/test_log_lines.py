"""Every part's log lines say what they are about: the task, the attempt, the trace, the span, and who writes."""

from __future__ import annotations

import fcntl
import json
import os
import signal
from pathlib import Path
from typing import Any

import httpx
import pytest

from firmq.shared.domain.task import TaskState
from firmq.shared.domain.traceparent import attempt_span
from tests.support.collector import Collector
from tests.support.harness import System, free_port, wait_until

_F_SETPIPE_SZ = 1031
TRACE = "0af7651916cd43dd8448eb211c80319c"
SAMPLED = {"traceparent": f"00-{TRACE}-b7ad6b7169203331-01"}


def lines(system: System, part: str, text: str) -> list[dict[str, Any]]:
    """What a part wrote, as far as the message holds this text."""
    written = "\n".join(path.read_text() for path in system.log_dir.glob(f"{part}-*.log"))
    fields = [json.loads(line) for line in written.splitlines() if line.startswith("{")]
    return [each for each in fields if text in each["message"]]


def some(system: System, part: str, text: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = wait_until(lambda: lines(system, part, text), f"{part} wrote {text!r}")
    return found


def test_a_handlers_own_lines_say_which_attempt_of_which_task_wrote_them(system: System) -> None:
    collector = Collector()
    try:
        worker = system.start_worker(**collector.environment)
        system.start_housekeeper()
        task_id = system.submit("talk", '{"lines": 1}', meta=SAMPLED, retry={"max_retries": 1})
        system.ended(task_id)
        first, second = some(system, "worker", "line 1 of 1")
        assert (first["task_id"], first["attempt"], second["attempt"]) == (task_id, 1, 2)
        assert {first["trace_id"], second["trace_id"]} == {TRACE}
        assert first["span_id"] == f"{attempt_span(task_id, 1):016x}"
        [info] = [each for each in system.workers.all() if each.pid == worker.pid]
        assert {first["instance"], second["instance"]} == {info.name}
        assert all("task_id" not in each for each in lines(system, "worker", "executors, queues"))
    finally:
        collector.stop()


def test_a_thread_that_a_handler_started_writes_for_the_same_task(system: System) -> None:
    system.start_worker()
    task_id = system.submit("mutter", "{}", meta=SAMPLED)
    system.ended(task_id)
    [line] = some(system, "worker", "from a thread")
    assert (line["task_id"], line["attempt"], line["trace_id"]) == (task_id, 1, TRACE)


def test_housekeeping_says_which_task_it_took_from_whom(system: System, tmp_path: Path) -> None:
    system.start_housekeeper(HOUSEKEEPER_DISTRIBUTED_EXECUTION_INSTANCE_ID="hk-7")
    worker = system.start_worker()
    mark = tmp_path / "mark"
    task_id = system.submit("note", json.dumps({"file": str(mark), "seconds": 60.0}), meta=SAMPLED)
    wait_until(mark.exists, "it runs")
    worker.send_signal(signal.SIGKILL)
    worker.wait()
    [line] = some(system, "housekeeper", "the lease of worker")
    assert (line["part"], line["instance"]) == ("housekeeper", "hk-7")
    assert (line["task_id"], line["attempt"], line["trace_id"]) == (task_id, 1, TRACE)
    assert (line["level"], line["task_type"], line["error_type"]) == ("WARNING", "note", "LeaseLost")
    assert "🔄" in line["message"], "a task that is tried again is found as the deployment guide says"


def test_each_failed_attempt_is_one_line_with_its_level_and_without_the_data(system: System) -> None:
    system.start_worker(MAX_RETRIES="2")
    system.start_housekeeper()
    task_id = system.submit("fail", '{"message": "password is hunter2"}', meta=SAMPLED)
    assert system.ended(task_id).summary.state is TaskState.FAILED
    dead = some(system, "worker", "dead letter")
    retries = lines(system, "worker", "🔄 retry")
    assert [(each["level"], each["attempt"]) for each in retries] == [("WARNING", 1), ("WARNING", 2)]
    assert [(each["level"], each["attempt"]) for each in dead] == [("ERROR", 3)]
    assert [each.get("retry_delay") for each in (*retries, *dead)] == [0.05, 0.1, None]
    for each in (*retries, *dead):
        assert (each["task_id"], each["task_type"], each["trace_id"]) == (task_id, "fail", TRACE)
        assert (each["error_type"], each["queue"]) == ("RuntimeError", "normal")
    written = system.logs()
    assert written.count("🔄") == 2, "what the deployment guide searches for is in the lines of retries only"
    assert "hunter2" not in written


def test_crashes_poison_tasks_and_cancelled_attempts_are_lines_too(system: System, tmp_path: Path) -> None:
    system.start_worker(MAX_CRASHES="2")
    system.start_housekeeper()
    crashing = system.submit("crash", '{"how": "kill"}')
    assert system.ended(crashing).summary.state is TaskState.FAILED
    mark = tmp_path / "mark"
    cancelled = system.submit("note", json.dumps({"file": str(mark), "seconds": 60.0}))
    wait_until(mark.exists, "it runs")
    system.queues.cancel(cancelled, "as asked")
    found = [*some(system, "worker", "🔄 retry"), *some(system, "worker", "dead letter")]
    found += some(system, "worker", "attempt cancelled")
    assert [(each["task_id"], each["level"], each["error_type"]) for each in found] == [
        (crashing, "WARNING", "ExecutorCrashed"),
        (crashing, "ERROR", "PoisonTask"),
        (cancelled, "INFO", "TaskCancelled"),
    ]


@pytest.mark.parametrize("traced", [True, False])
def test_a_request_is_one_line_with_its_task_and_trace(system: System, traced: bool) -> None:
    collector = Collector()
    try:
        port = free_port()
        environment = collector.environment if traced else {}
        system.start_worker(WORKER_EXECUTORS="1")
        system.start("gateway", GATEWAY_PORT=str(port), GATEWAY_PROCESSES="1", LOG_FORMAT="json", **environment)
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=10) as http:
            wait_until(lambda: _knows_noop(http), "the gateway is ready")
            answer = http.post("/tasks", json={"type": "noop", "data": 1}, headers={**SAMPLED, "X-Request-ID": "r-1"})
            http.post("/tasks", json={"type": "nonsense"}, headers={"X-Request-ID": "r-2"})
        mine = [each for each in some(system, "gateway", "request") if each["request_id"] == "r-1"]
        wait_until(lambda: any(each["request_id"] == "r-2" for each in lines(system, "gateway", "request")), "both")
        [line] = mine
        assert (line["task_id"], line["trace_id"]) == (answer.json()["task_id"], TRACE)
        assert ("span_id" in line) is traced, "a span is named only where there is one"
        assert line["instance"]
    finally:
        collector.stop()


def test_a_worker_continues_when_its_log_is_not_read(system: System) -> None:
    reader, writer = os.pipe()
    try:
        fcntl.fcntl(writer, _F_SETPIPE_SZ, 4096)
        system.log_to = writer
        worker = system.start_worker(MAX_RETRIES="0")
        failing = system.submit_many([("fail", "null")] * 200)
        for task_id in failing:
            assert system.ended(task_id).summary.state is TaskState.FAILED
        assert system.ended(system.submit("echo", '"still here"')).result == "still here"
        worker.terminate()
        assert worker.wait(20) == 0
    finally:
        os.close(reader)
        os.close(writer)


def _knows_noop(http: httpx.Client) -> bool:
    try:
        return "noop" in http.get("/types").text
    except httpx.TransportError:
        return False
