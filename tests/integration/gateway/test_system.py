"""Workers, types, queues, health, metrics, the documents about the API, and what surrounds every request."""

from __future__ import annotations

import http.server
import json
import logging
import re
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, ClassVar

import jsonschema_rs
import pytest
from flask.testing import FlaskClient
from prometheus_client.parser import text_string_to_metric_families

from firmq.gateway.http.errors import KINDS
from firmq.gateway.metrics import MOST_TYPES, Metrics
from firmq.shared.redis.client import raw
from firmq.shared.stores.queues import Queues
from firmq.shared.stores.workers import BlockingType, QueueExecutors, RunningTask, WorkerInfo, Workers
from tests.integration.gateway.conftest import MakeGateway
from tests.integration.gateway.driving import Gateway, problem
from tests.support.keys import keys

# --- workers, types, queues ---


def test_a_worker_is_shown_with_what_it_does(gateway: Gateway) -> None:
    Workers(gateway.redis).announce(
        WorkerInfo(
            name="w1",
            host="h",
            pid=1,
            version="1",
            app_version="a1b2c3d",
            queues=("high",),
            executors=2,
            started_at=datetime(2026, 1, 1, tzinfo=UTC),
            running=(RunningTask(id="t1", type="process", seconds=1.5),),
            queue_executors=(QueueExecutors(queue="high", in_use=1, limit=2),),
            slots=102,
            active=1,
            blocking_types=(BlockingType(type="scrape", where="shop.py:7 in fetch"),),
        )
    )
    [shown] = gateway.http.get("/workers").get_json()["items"]
    assert (shown["name"], shown["queues"], shown["started_at"]) == ("w1", ["high"], "2026-01-01T00:00:00Z")
    assert shown["running"] == [{"task_id": "t1", "type": "process", "seconds": 1.5}]
    assert shown["queue_executors"] == [{"queue": "high", "in_use": 1, "limit": 2}]
    assert (shown["slots"], shown["active"]) == (102, 1)
    assert shown["blocking_types"] == [{"type": "scrape", "where": "shop.py:7 in fetch"}]
    assert (shown["state"], shown["reason"], shown["app_version"]) == ("idle", None, "a1b2c3d")
    record = json.loads(raw(gateway.redis.get(keys.worker("w1"))))
    record["running"][0]["added_later"] = record["added_later"] = 1  # as a newer version announces itself
    gateway.redis.set(keys.worker("w1"), json.dumps(record))
    assert gateway.http.get("/workers").get_json()["items"] == [shown]
    del record["app_version"]  # as an earlier version announces itself
    gateway.redis.set(keys.worker("w1"), json.dumps(record))
    assert gateway.http.get("/workers").get_json()["items"] == [{**shown, "app_version": None}]


@pytest.mark.parametrize(("age", "state"), [(12, "silent"), (17, "lost")])
def test_a_worker_without_heartbeats_is_shown_with_the_reason(gateway: Gateway, age: int, state: str) -> None:
    about = {"host": "h", "pid": 1, "version": "1", "executors": 1, "started_at": datetime(2026, 1, 1, tzinfo=UTC)}
    Workers(gateway.redis).announce(WorkerInfo(name="w1", queues=("high",), **about))  # type: ignore[arg-type]
    seconds, _ = gateway.redis.time()
    gateway.redis.zadd(keys.WORKERS, {"w1": (int(seconds) - age) * 1_000_000})
    gateway.redis.zadd(keys.REASSIGNED, {"w1": 1})
    [shown] = gateway.http.get("/workers").get_json()["items"]
    assert shown["state"] == state
    assert str(shown["reason"]).startswith("no heartbeat since ")
    assert str(shown["reason"]).endswith("; 1 task was given to other workers")


@pytest.mark.parametrize("score", [float("inf"), float("-inf"), 1])
def test_an_impossible_count_of_a_worker_is_read_as_none(gateway: Gateway, score: float) -> None:
    about = {"host": "h", "pid": 1, "version": "1", "executors": 1, "started_at": datetime(2026, 1, 1, tzinfo=UTC)}
    workers = Workers(gateway.redis)
    workers.announce(WorkerInfo(name="w1", queues=("high",), **about))  # type: ignore[arg-type]
    gateway.redis.zadd(keys.WORKERS, {"w1": 1})
    gateway.redis.zadd(keys.REASSIGNED, {"w1": score})
    [lost] = workers.look().lost
    assert lost.reason is not None
    assert ("1 task was given" in lost.reason) == ("given" in lost.reason) == (score == 1)


def test_types_are_shown_with_their_schema_and_retry_policy(http: FlaskClient) -> None:
    items = http.get("/types").get_json()["items"]
    assert [item["name"] for item in items] == ["calculate", "process", "resize"]
    one = http.get("/types/resize").get_json()
    assert one["data_schema"]["required"] == ["url"]
    assert one["retry"]["max_retries"] == 7
    assert one["retry"]["initial_delay"] == 5


def test_a_queue_is_paused_with_a_reason_and_resumed(gateway: Gateway) -> None:
    task_id = gateway.submit(priority="high")
    paused = gateway.http.post("/queues/high/pause", json={"reason": "partner is down"}).get_json()
    assert (paused["paused"], paused["paused_reason"], paused["pending"]) == (True, "partner is down", 1)
    assert paused["paused_at"].endswith("Z")
    assert gateway.start() == []
    assert gateway.http.post("/queues/high/resume").get_json()["paused"] is False
    assert gateway.start() == [task_id]


def test_who_paused_a_queue_is_shown(gateway: Gateway) -> None:
    Queues(gateway.scripts, {"high": 1}).pause("high", "partner is down", by="ann")
    paused = {item["name"]: item["paused_by"] for item in gateway.http.get("/queues").get_json()["items"]}
    assert paused == {"critical": None, "high": "ann", "normal": None, "low": None}


@pytest.mark.parametrize("body", [{}, {"reason": ""}, {"reason": 5}, {"reason": "x" * 501}])
def test_pausing_needs_a_reason(http: FlaskClient, body: dict[str, Any]) -> None:
    problem(http.post("/queues/high/pause", json=body), 422, "invalid-request")


def test_pausing_without_a_body_says_what_the_body_needs(http: FlaskClient) -> None:
    refused = problem(http.post("/queues/high/pause"), 422, "invalid-request")
    assert "reason: is required" in refused["detail"]
    assert "type: is required" in problem(http.post("/tasks"), 422, "invalid-request")["detail"]
    problem(http.post("/queues/high/pause", data="reason=x", content_type="text/plain"), 415, "unsupported-media-type")


def test_queues_are_listed_by_weight_and_the_default_one_is_marked(gateway: Gateway) -> None:
    gateway.submit()
    items = gateway.http.get("/queues").get_json()["items"]
    assert [item["name"] for item in items] == ["critical", "high", "normal", "low"]
    assert [item["name"] for item in items if item["default"]] == ["normal"]
    assert items[2]["pending"] == 1
    assert items[2]["oldest_at"]


# --- health ---


def test_health_says_what_to_look_at(gateway: Gateway) -> None:
    gateway.submit()
    body = gateway.http.get("/health").get_json()
    assert body["status"] == "degraded"
    assert body["queues"] == {"critical": 0, "high": 0, "normal": 1, "low": 0}
    assert any("no worker" in note for note in body["notes"])
    assert body["redis"]["reachable"] is True


def _worker() -> WorkerInfo:
    return WorkerInfo(
        name="w1", host="h", pid=1, version="1", queues=("normal",), executors=2, started_at=datetime.now(UTC)
    )


@pytest.mark.parametrize(("waits", "status"), [(290, "ok"), (310, "degraded")])
def test_a_task_that_waits_for_long_is_a_reason_to_look(gateway: Gateway, waits: int, status: str) -> None:
    Workers(gateway.redis).announce(_worker())
    gateway.redis.zadd(keys.pending("normal"), {gateway.submit(): gateway.scripts.now_us() - waits * 1_000_000})
    body = gateway.http.get("/health").get_json()
    assert (body["status"], any("start more workers" in note for note in body["notes"])) == (status, waits > 300)
    assert gateway.http.get("/health/ready").status_code == 200, "it is taken and waits"


def test_a_due_task_that_no_housekeeper_moves_is_a_reason_to_look(gateway: Gateway) -> None:
    Workers(gateway.redis).announce(_worker())
    task_id = gateway.submit(delay=60)
    assert gateway.http.get("/health").get_json()["status"] == "ok"
    gateway.redis.zadd(keys.scheduled("normal"), {task_id: gateway.scripts.now_us() - 12_000_000})
    body = gateway.http.get("/health").get_json()
    assert body["status"] == "degraded"
    assert any('task in queue "normal"' in note and "start a housekeeper" in note for note in body["notes"])


def test_without_task_types_the_gateway_is_not_ready(make_gateway: MakeGateway) -> None:
    fresh = make_gateway(types=())
    problem(fresh.http.post("/tasks", json={"type": "process", "data": 1}), 503, "no-task-types")
    for path in ("/health", "/health/ready"):
        answer = fresh.http.get(path)
        assert answer.status_code == 503
        assert any("no worker has registered its task types" in note for note in answer.get_json()["notes"])


@pytest.mark.parametrize("name", ["SCHEDULES_FAILING", "SCHEDULES_MISSED", "LOST_LOCKS", "LEASES", "QUARANTINE"])
def test_a_key_of_another_type_takes_no_gateway_out_of_service(gateway: Gateway, name: str) -> None:
    gateway.redis.set(getattr(keys, name), "a value of another program")
    assert gateway.http.get("/health/ready").status_code == 200


def test_a_redis_that_may_throw_tasks_away_is_not_ready(gateway: Gateway) -> None:
    gateway.redis.config_set("maxmemory-policy", "allkeys-lru")
    try:
        for path in ("/health", "/health/ready"):
            answer = gateway.http.get(path)
            assert answer.status_code == 503
            assert any("noeviction" in note for note in answer.get_json()["notes"])
        assert gateway.http.get("/health/live").status_code == 200
    finally:
        gateway.redis.config_set("maxmemory-policy", "noeviction")


def test_a_redis_that_is_full_is_a_503_and_nothing_is_stored(gateway: Gateway) -> None:
    gateway.submit()
    gateway.redis.config_set("maxmemory", 1)
    try:
        answer = gateway.http.post("/tasks", json={"type": "process", "data": 1})
        assert "maxmemory" in problem(answer, 503, "store-refuses-writes")["detail"]
        assert answer.headers["Retry-After"]
        assert gateway.http.get("/tasks").status_code == 200
    finally:
        gateway.redis.config_set("maxmemory", 0)
    assert len(gateway.http.get("/tasks").get_json()["items"]) == 1


# --- metrics ---


def series(text: str) -> dict[str, float]:
    """Every series of a page by name and labels; a page with a series twice or a family twice is refused."""
    families = [line.split()[2] for line in text.splitlines() if line.startswith("# TYPE")]
    assert len(families) == len(set(families)), families
    found: dict[str, float] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            labels = ",".join(f'{name}="{value}"' for name, value in sorted(sample.labels.items()))
            key = f"{sample.name}{{{labels}}}"
            assert key not in found
            found[key] = sample.value
    return found


def test_submissions_are_counted_by_priority_and_type(gateway: Gateway) -> None:
    gateway.submit(), gateway.submit(), gateway.submit(priority="high")
    gateway.http.post("/tasks", json={"type": "made-up", "data": 1})
    page = gateway.http.get("/metrics")
    assert page.content_type.startswith("text/plain")
    found = series(page.text)
    assert found['task_submissions_total{priority="normal",type="process"}'] == 2
    assert found['task_submissions_total{priority="high",type="process"}'] == 1
    assert "made-up" not in page.text


def test_a_flood_of_types_does_not_make_a_flood_of_series(gateway: Gateway) -> None:
    before = len(gateway.http.get("/metrics").text.splitlines())
    for number in range(300):
        gateway.http.post("/tasks", json={"type": f"made-up-{number}", "data": 1, "priority": f"p{number}"})
    refused = gateway.http.get("/metrics").text
    assert "made-up" not in refused
    assert len(refused.splitlines()) < before + 50  # the histogram of refusals
    metrics = Metrics()
    at_first = len(series(metrics.render().decode()))
    for number in range(5000):
        metrics.submitted("normal", f"published-{number}")
    found = series(metrics.render().decode())
    assert found['task_submissions_total{priority="normal",type="other"}'] == 5000 - MOST_TYPES
    assert len(found) - at_first < 2 * MOST_TYPES + 5


def test_labels_of_requests_are_never_what_a_caller_made_up(gateway: Gateway) -> None:
    gateway.http.get("/tasks/some-id")
    gateway.http.get("/made/up")
    gateway.http.open("/tasks", method="BREW")
    text = gateway.http.get("/metrics").text
    assert "some-id" not in text
    assert "made/up" not in text
    assert "BREW" not in text
    assert 'route="/tasks/<id:task_id>"' in text


class Part(http.server.BaseHTTPRequestHandler):
    """Another part's metrics."""

    pages: ClassVar[dict[str, str]] = {
        "/a": "# HELP task_completions_total Done.\n# TYPE task_completions_total counter\n"
        'task_completions_total{type="x"} 2\n'
        "# TYPE python_info gauge\npython_info 1\n# TYPE pending_tasks_total gauge\npending_tasks_total 5\n"
        "# TYPE firmq_held_tasks gauge\nfirmq_held_tasks 2\n"
        "# TYPE firmq_housekeeping_last_success_age_seconds gauge\n"
        'firmq_housekeeping_last_success_age_seconds{name="ttl"} 40\n'
        '# TYPE task_submissions_total counter\ntask_submissions_total{priority="low",type="x"} 99\n',
        "/b": '# TYPE task_completions_total counter\ntask_completions_total{type="x"} 3\n'
        "# TYPE pending_tasks_total gauge\npending_tasks_total 4\n"
        "# TYPE firmq_held_tasks gauge\nfirmq_held_tasks 3\n"
        '# TYPE task_duration_seconds histogram\ntask_duration_seconds_bucket{le="+Inf"} 1\n'
        "task_duration_seconds_sum 2\ntask_duration_seconds_count 1\n"
        "# TYPE firmq_housekeeping_last_success_age_seconds gauge\n"
        'firmq_housekeeping_last_success_age_seconds{name="ttl"} 3\n',
        "/odd": "no metrics { at all",
    }

    _RUNS = "firmq_housekeeping_runs_total"
    for _name, _leads, _lost, _runs in (("hk-1", 1, 0, 2), ("hk-2", 0, 4, 3)):
        pages[f"/{_name}"] = (
            f'# TYPE firmq_housekeeper_info gauge\nfirmq_housekeeper_info{{instance_id="{_name}"}} 1\n'
            f"# TYPE firmq_housekeeper_leader gauge\nfirmq_housekeeper_leader {_leads}\n"
            f'# TYPE firmq_lock_lost_total counter\nfirmq_lock_lost_total{{lock="ttl"}} {_lost}\n'
            f'# TYPE {_RUNS} counter\n{_RUNS}{{name="ttl"}} {_runs}\n'
        )

    def do_GET(self) -> None:
        body = self.pages[self.path.partition("?")[0]].encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None: ...  # noqa: A002  # named by the base class


@contextmanager
def parts(port: str = "0", host: str = "127.0.0.1") -> Iterator[str]:
    server = http.server.ThreadingHTTPServer((host, int(port)), Part)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def test_metrics_of_other_parts_are_shown_and_added_up(make_gateway: MakeGateway) -> None:
    with parts() as address:
        sources = (f"{address}/a", f"{address}/b", f"{address}/odd", "127.0.0.1:1")
        gateway = make_gateway(metrics_sources=sources)
        gateway.submit()
        found = series(gateway.http.get("/metrics").text)
        assert found['task_completions_total{type="x"}'] == 5
        assert found["pending_tasks_total{}"] == 5, "two leaders that show the whole system are not added up"
        assert found["firmq_held_tasks{}"] == 5
        assert found["task_duration_seconds_count{}"] == 1
        assert found['firmq_housekeeping_last_success_age_seconds{name="ttl"}'] == 3, "whoever did it last"
        assert "python_info{}" not in found
        assert [name for name in found if name.startswith("task_submissions_total")] == [
            'task_submissions_total{priority="normal",type="process"}'
        ]


def test_what_is_said_of_one_housekeeper_keeps_its_instance(make_gateway: MakeGateway) -> None:
    with parts() as address:
        gateway = make_gateway(metrics_sources=(f"{address}/hk-1", f"{address}/hk-2"))
        found = series(gateway.http.get("/metrics").text)
        assert found['firmq_housekeeper_leader{instance_id="hk-1"}'] == 1
        assert found['firmq_housekeeper_leader{instance_id="hk-2"}'] == 0
        assert found['firmq_lock_lost_total{instance_id="hk-2",lock="ttl"}'] == 4
        assert found['firmq_housekeeping_runs_total{instance_id="hk-1",name="ttl"}'] == 2
        assert found['firmq_housekeeping_runs_total{instance_id="hk-2",name="ttl"}'] == 3


def test_every_address_of_a_name_is_asked_and_a_prometheus_gets_our_own_metrics_alone(
    make_gateway: MakeGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    with parts() as address, parts(address.rpartition(":")[2], "127.0.0.2") as _:
        port = address.rpartition(":")[2]
        resolve = socket.getaddrinfo

        def of_a_service(host: str, *arguments: Any) -> Any:
            if host != "worker":
                return resolve(host, *arguments)
            return [entry for each in ("127.0.0.1", "127.0.0.2") for entry in resolve(each, *arguments)]

        monkeypatch.setattr(socket, "getaddrinfo", of_a_service)
        gateway = make_gateway(metrics_sources=(f"worker:{port}/a",))
        gateway.submit()
        all_parts, own = gateway.http.get("/metrics"), gateway.http.get("/metrics?parts=gateway")
        assert series(all_parts.text)['task_completions_total{type="x"}'] == 4
        assert "task_completions_total" not in own.text
        assert "task_submissions_total" in own.text
        assert gateway.http.get("/metrics?parts=worker").status_code == 422


# --- documents about the API ---

ABOUT_ITSELF = re.compile(r"/|/openapi.json|/favicon.ico|/(docs|problems)(/.*)?")


@pytest.fixture
def openapi(http: FlaskClient) -> Any:
    return http.get("/openapi.json").get_json()


def test_the_document_is_openapi_3_1_and_every_reference_leads_somewhere(openapi: Any) -> None:
    assert openapi["openapi"] == "3.1.0"
    names = set(re.findall(r'"#/components/schemas/(\w+)"', json.dumps(openapi)))
    assert names <= openapi["components"]["schemas"].keys()
    for schema in openapi["components"]["schemas"].values():
        jsonschema_rs.meta.validate({**schema, "$defs": {}})


def test_every_address_is_documented_with_every_problem(gateway: Gateway, openapi: Any) -> None:
    declared = {
        (re.sub(r"<\w+:(\w+)>", r"{\1}", rule.rule), method.lower())
        for rule in gateway.app.url_map.iter_rules()
        for method in rule.methods or ()
        if method not in ("HEAD", "OPTIONS") and not ABOUT_ITSELF.fullmatch(rule.rule)
    }
    documented = {(path, method) for path, operations in openapi["paths"].items() for method in operations}
    assert declared == documented
    submit = openapi["paths"]["/tasks"]["post"]["responses"]
    assert set(submit) == {"200", "202", "400", "401", "403", "406", "409", "413", "415", "422", "429", "500", "503"}


def test_answers_fit_their_documented_schemas(gateway: Gateway, openapi: Any) -> None:
    done, bad = gateway.submit(data={"a": 1}, tags=["t"]), gateway.submit()
    gateway.fail(bad)
    gateway.complete(done, 5)
    for path, template in (
        ("/tasks", "/tasks"),
        (f"/tasks/{done}", "/tasks/{task_id}"),
        (f"/tasks/{bad}", "/tasks/{task_id}"),
        (f"/tasks/{done}/result", "/tasks/{task_id}/result"),
        ("/tasks/nothing", "/tasks/{task_id}"),
        ("/dlq/failed-tasks", "/dlq/failed-tasks"),
        ("/workers", "/workers"),
        ("/types", "/types"),
        ("/types/process", "/types/{name}"),
        ("/queues", "/queues"),
        ("/health", "/health"),
        ("/health/live", "/health/live"),
    ):
        answer = gateway.http.get(path)
        content = openapi["paths"][template]["get"]["responses"][str(answer.status_code)]["content"]
        schema = {**content[answer.content_type]["schema"], "components": openapi["components"]}
        jsonschema_rs.validator_for(schema).validate(answer.get_json(force=True))


def test_the_page_needs_nothing_from_elsewhere(http: FlaskClient) -> None:
    page = http.get("/docs")
    assert page.content_type == "text/html; charset=utf-8"
    assert "unsafe" not in page.headers["Content-Security-Policy"]
    loaded = re.findall(r'(?:src|href)="([^"#]+)"', page.text)
    assert loaded
    for address in loaded:
        assert address.startswith("/")
        assert http.get(address).status_code == 200
    assert not re.search(r"<script>|<style|style=|onclick", page.text)


def test_every_kind_of_problem_explains_itself(http: FlaskClient) -> None:
    assert len(http.get("/problems").get_json()["items"]) == len(KINDS)
    for slug, kind in KINDS.items():
        assert http.get(f"/problems/{slug}").get_json()["meaning"] == kind.meaning


def test_the_index_says_where_things_are(http: FlaskClient) -> None:
    body = http.get("/").get_json()
    assert body["addresses"]["/tasks"] == ["GET", "POST"]
    assert http.get(body["documentation"]).status_code == 200


# --- around every request ---


@pytest.mark.parametrize("given", ["abc-DEF_123", "a" * 64])
def test_a_request_id_is_echoed(http: FlaskClient, given: str) -> None:
    assert http.get("/health/live", headers={"X-Request-ID": given}).headers["X-Request-ID"] == given


@pytest.mark.parametrize("given", ["", "a" * 65, "a b", "é", "<script>", "a\x1b[31m"])
def test_an_unsafe_request_id_is_replaced(http: FlaskClient, given: str) -> None:
    made = http.get("/nothing", headers={"X-Request-ID": given}).headers["X-Request-ID"]
    assert re.fullmatch(r"[0-9a-f]{16}", made)


def test_every_answer_carries_the_headers_that_protect_browsers(http: FlaskClient) -> None:
    for path in ("/", "/tasks", "/nothing", "/docs", "/metrics"):
        headers = http.get(path).headers
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert headers["Content-Security-Policy"].startswith("default-src 'none'")
        assert headers["Cache-Control"] == "no-store"


def test_each_request_is_one_line_with_its_ids(gateway: Gateway, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "firmq.gateway.access"):
        answer = gateway.http.post("/tasks", json={"type": "process", "data": 1}, headers={"X-Request-ID": "r1"})
        gateway.http.get("/health/live")
    [line] = [record for record in caplog.records if record.name == "firmq.gateway.access"]
    about = vars(line)
    assert (about["request_id"], about["task_id"], about["status"]) == ("r1", answer.get_json()["task_id"], 202)
    assert about["ms"] > 0


def test_an_unexpected_fault_is_a_500_without_its_details(
    gateway: Gateway, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fails(*_: object, **__: object) -> None:
        raise RuntimeError("secret detail")

    monkeypatch.setattr("firmq.shared.stores.workers.Workers.look", fails)
    answer = gateway.http.get("/workers")
    assert "secret" not in json.dumps(problem(answer, 500, "internal-error"))
    assert "secret detail" in caplog.text
