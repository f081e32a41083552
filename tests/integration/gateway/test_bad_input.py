"""Wrong input: the right status, a problem document, and words that say what to change. Never a 500."""

from __future__ import annotations

import json
from typing import Any

import pytest
from flask.testing import FlaskClient
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.integration.gateway.driving import Gateway, problem
from tests.support.keys import keys

JSON = "application/json"


@pytest.mark.parametrize(
    ("change", "field", "says"),
    [
        ({"type": None}, "type", "string"),
        ({"type": 5}, "type", "string"),
        ({"type": True}, "type", "string"),
        ({"type": "x" * 10_000}, "type", "100 characters"),
        ({"priority": "urgent"}, "priority", "critical, high, normal, low"),
        ({"priority": 1}, "priority", "a number in score"),
        ({"delay": -1}, "delay", "0 to 31622400"),
        ({"delay": 1e308}, "delay", "0 to 31622400"),
        ({"delay": 31622401}, "delay", "0 to 31622400"),
        ({"delay": True}, "delay", "number"),
        ({"delay": "5"}, "delay", "number"),
        ({"delay": []}, "delay", "number"),
        ({"delay": 10**400}, "delay", "number"),
        ({"run_at": "tomorrow"}, "run_at", "2030-01-31T12:00:00Z"),
        ({"run_at": 1_800_000_000}, "run_at", "2030-01-31T12:00:00Z"),
        ({"run_at": "2030-01-31T12:00:00"}, "run_at", "2030-01-31T12:00:00Z"),
        ({"run_at": "2030-02-31T12:00:00Z"}, "run_at", "not a valid time"),
        ({"run_at": "9999-01-01T00:00:00Z"}, "run_at", "seconds ahead"),
        ({"run_at": "1900-01-01T00:00:00Z"}, "run_at", "1970"),
        ({"delay": 1, "run_at": "2026-01-01T00:00:00Z"}, "", "both delay and run_at"),
        ({"expires_in": 0}, "expires_in", "more than 0"),
        ({"expires_in": True}, "expires_in", "number"),
        ({"expires_in": 5, "delay": 10}, "", "expires_in larger than delay"),
        ({"timeout": 0}, "timeout", "more than 0"),
        ({"timeout": 10**9}, "timeout", "at most 604800"),
        ({"timeout": False}, "timeout", "number"),
        ({"max_retries": -1}, "max_retries", "at least 0"),
        ({"max_retries": 1.5}, "max_retries", "whole number"),
        ({"max_retries": True}, "max_retries", "whole number"),
        ({"max_retries": 1001}, "max_retries", "at most 1000"),
        ({"retry": 3}, "retry", "object"),
        ({"retry": {"max_retries": True}}, "retry.max_retries", "whole number"),
        ({"retry": {"delays": []}}, "retry.delays", "is unknown"),
        ({"retry": {"jitter": 2}}, "retry.jitter", "at most 1"),
        ({"retry": {"max_retries": 1}, "max_retries": 1}, "", "both max_retries"),
        ({"tags": "a"}, "tags", "array"),
        ({"tags": [1]}, "tags[0]", "string"),
        ({"tags": ["a", "b c"]}, "tags[1]", "64 characters"),
        ({"tags": ["\n"]}, "tags[0]", "64 characters"),
        ({"tags": ["a"] * 17}, "tags", "16 items"),
        ({"prority": "high"}, "prority", "priority"),
        ({"function": "os.system"}, "function", "is unknown"),
        ({"\x00\r\n": 1}, "\x00\r\n", "is unknown"),
        ({"x" * 5000: 1}, "x" * 200 + "…", "is unknown"),
    ],
)
def test_a_wrong_field_is_named_with_what_it_must_be(
    gateway: Gateway, change: dict[str, Any], field: str, says: str
) -> None:
    answer = gateway.http.post("/tasks", json={"type": "process", "data": 1, **change})
    [error] = problem(answer, 422, "invalid-request")["errors"]
    assert error["field"] == field
    assert says in error["detail"]
    assert gateway.redis.zcard(keys.TASKS) == 0


@pytest.mark.parametrize(
    "name", ["nope", "os.system", "../process", "firmq.worker.main", "", "PROCESS", "process\x00", "é"]
)
def test_an_unknown_type_is_refused_with_the_types_there_are(http: FlaskClient, name: str) -> None:
    body = problem(http.post("/tasks", json={"type": name, "data": 1}), 422, "unknown-task-type")
    assert "calculate, process, resize" in body["detail"]
    assert body["known_types"] == ["calculate", "process", "resize"]


def test_all_wrong_fields_are_reported_together(http: FlaskClient) -> None:
    answer = http.post("/tasks", json={"delay": -1, "timeout": True, "tags": [1], "nonsense": 1})
    found = {error["field"] for error in problem(answer, 422, "invalid-request")["errors"]}
    assert found == {"type", "data", "delay", "timeout", "tags[0]", "nonsense"}


@pytest.mark.parametrize("body", [b"[]", b"null", b'"text"', b"5", b"true"])
def test_a_body_that_is_no_object_is_refused(http: FlaskClient, body: bytes) -> None:
    answer = http.post("/tasks", data=body, content_type=JSON)
    assert "JSON object" in problem(answer, 422, "invalid-request")["detail"]


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (b"", "empty"),
        (b'{"type":"process","data":1', "not JSON"),
        (b'{"type":"process","data":1}}', "Extra data"),
        (b'{"type":"process","data":NaN}', "NaN"),
        (b'{"type":"process","data":1e400}', "too large"),
        (b'{"type":"process","data":-0}', "-0"),
        (b'{"type":"process","data":' + b"9" * 5000 + b"}", "5000 digits"),
        (b'{"type":"process","type":"process","data":1}', "twice"),
        (b'{"type":"process","data":"\\ud800"}', "surrogate"),
        (b'{"type":"process","data":"\xff"}', "not UTF-8"),
        (b'\xef\xbb\xbf{"type":"process","data":1}', "byte order mark"),
        ('{"type":"process","data":1}'.encode("utf-16"), "UTF-16"),
        (b'{"type":"process","data":' + b"[" * 64 + b"]" * 64 + b"}", "64 deep"),
        (b'{"type":"process","data":' + b"[" * 5000 + b"]" * 5000 + b"}", "64 deep"),
        (b'{"type":"process","data":' + b'{"a":' * 100_000 + b"1" + b"}" * 100_000 + b"}", "64 deep"),
    ],
)
def test_broken_json_is_a_400_that_says_where(http: FlaskClient, body: bytes, says: str) -> None:
    assert says in problem(http.post("/tasks", data=body, content_type=JSON), 400, "invalid-json")["detail"]


def test_nesting_is_accepted_up_to_the_limit(http: FlaskClient) -> None:
    body = b'{"type":"process","data":' + b"[" * 63 + b"]" * 63 + b"}"
    assert http.post("/tasks", data=body, content_type=JSON).status_code == 202


@pytest.mark.parametrize("kind", [None, "", "text/plain", "application/x-www-form-urlencoded", "application/json-seq"])
def test_another_content_type_is_a_415(http: FlaskClient, kind: str | None) -> None:
    answer = http.post("/tasks", data=b'{"type":"process","data":1}', content_type=kind)
    assert "Content-Type" in problem(answer, 415, "unsupported-media-type")["detail"]


@pytest.mark.parametrize("kind", [JSON, "application/json; charset=utf-8", 'Application/JSON;Charset="UTF-8"'])
def test_json_in_utf8_is_taken_however_it_is_spelled(http: FlaskClient, kind: str) -> None:
    assert http.post("/tasks", data=b'{"type":"process","data":1}', content_type=kind).status_code == 202


def test_another_charset_or_a_compressed_body_is_a_415(http: FlaskClient) -> None:
    body = b'{"type":"process","data":1}'
    latin = http.post("/tasks", data=body, content_type="application/json; charset=latin-1")
    assert "utf-8" in problem(latin, 415, "unsupported-media-type")["detail"]
    zipped = http.post("/tasks", data=body, content_type=JSON, headers={"Content-Encoding": "gzip"})
    assert "compressed" in problem(zipped, 415, "unsupported-media-type")["detail"]


def test_a_body_over_the_limit_is_a_413(http: FlaskClient) -> None:
    frame = b'{"type":"process","data":"%s"}'
    full = frame % (b"x" * ((1 << 20) - len(frame) + 2))
    assert len(full) == 1 << 20
    assert http.post("/tasks", data=full, content_type=JSON).status_code == 202
    refused = problem(http.post("/tasks", data=full + b" ", content_type=JSON), 413, "too-large")
    assert "1,048,576 bytes (MAX_BODY_BYTES)" in refused["detail"]


@pytest.mark.parametrize(
    ("query", "parameter", "says"),
    [
        ("limit=0", "limit", "at least 1"),
        ("limit=201", "limit", "at most 200"),
        ("limit=-1", "limit", "at least 1"),
        ("limit=1000000000", "limit", "at most 200"),
        ("limit=x", "limit", "whole number"),
        ("limit=", "limit", "whole number"),
        ("status=done", "status", "pending"),
        ("priority=urgent", "priority", "critical"),
        ("since=yesterday", "since", "2030-01-31T12:00:00Z"),
        ("until=2030-13-01T00:00:00Z", "until", "not a valid time"),
        ("stats=pending", "stats", "did you mean status"),
        ("status=pending&status=running", "status", "more than once"),
        ("cursor=x", "cursor", "this list"),
        ("cursor=nan_x", "cursor", "this list"),
        ("cursor=inf_x", "cursor", "this list"),
        ("cursor=1_%00", "cursor", "this list"),
        ("cursor=" + "1" * 300, "cursor", "200 characters"),
        ("type=" + "x" * 300, "type", "100 characters"),
    ],
)
def test_a_wrong_parameter_is_named(http: FlaskClient, query: str, parameter: str, says: str) -> None:
    [error] = problem(http.get(f"/tasks?{query}"), 422, "invalid-request")["errors"]
    assert error["parameter"] == parameter
    assert says in error["detail"]


@pytest.mark.parametrize("wait", ["-1", "31", "nan", "inf", "x", "1e308"])
def test_the_wait_for_a_result_is_bounded(gateway: Gateway, wait: str) -> None:
    answer = gateway.http.get(f"/tasks/{gateway.submit()}/result?wait={wait}")
    [error] = problem(answer, 422, "invalid-request")["errors"]
    assert error["parameter"] == "wait"


IDS = [
    "x" * 10_000,
    "%00",
    "a%00b",
    "..",
    "../../etc/passwd",
    "%2e%2e%2fetc",
    "%E2%98%83",
    "%FF",
    "a%0d%0aX-Evil:%201",
    "a b",
    "a;b",
    "x" * 65,
]


@pytest.mark.parametrize("made_up", IDS)
@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/tasks/{}"),
        ("DELETE", "/tasks/{}"),
        ("GET", "/tasks/{}/result"),
        ("POST", "/dlq/failed-tasks/{}/retry"),
        ("DELETE", "/dlq/failed-tasks/{}"),
        ("GET", "/types/{}"),
        ("POST", "/queues/{}/resume"),
    ],
)
def test_a_malformed_id_is_a_404(http: FlaskClient, method: str, path: str, made_up: str) -> None:
    answer = http.open(path.format(made_up), method=method)
    assert answer.status_code == 404
    assert answer.content_type == "application/problem+json"
    assert "X-Evil" not in answer.headers
    assert len(answer.data) < 1000


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/tasks/unknown-1"),
        ("DELETE", "/tasks/unknown-1"),
        ("GET", "/tasks/unknown-1/result"),
        ("GET", "/tasks/unknown-1/result?wait=5"),
        ("POST", "/dlq/failed-tasks/unknown-1/retry"),
        ("DELETE", "/dlq/failed-tasks/unknown-1"),
        ("GET", "/types/unknown"),
        ("POST", "/queues/unknown/resume"),
    ],
)
def test_what_does_not_exist_is_a_404(http: FlaskClient, method: str, path: str) -> None:
    problem(http.open(path, method=method), 404, "not-found")


@pytest.mark.parametrize("path", ["/nothing", "/tasks//", "/Tasks", "/tasks/a/b", "/static/x", "/docs/../app.py"])
def test_a_path_that_is_not_ours_is_a_404_in_json(http: FlaskClient, path: str) -> None:
    assert http.get(path).status_code == 404
    assert http.get(path).content_type == "application/problem+json"


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("PUT", "/tasks", {"GET", "HEAD", "OPTIONS", "POST"}),
        ("POST", "/tasks/some-id", {"GET", "HEAD", "OPTIONS", "DELETE", "PATCH"}),
        ("POST", "/health", {"GET", "HEAD", "OPTIONS"}),
        ("GET", "/dlq/failed-tasks/some-id/retry", {"POST", "OPTIONS"}),
        ("TRACE", "/tasks", {"GET", "HEAD", "OPTIONS", "POST"}),
        ("BREW", "/tasks", {"GET", "HEAD", "OPTIONS", "POST"}),
    ],
)
def test_a_wrong_method_is_a_405_that_lists_the_right_ones(
    http: FlaskClient, method: str, path: str, allowed: set[str]
) -> None:
    answer = http.open(path, method=method)
    problem(answer, 405, "method-not-allowed")
    assert set(answer.headers["Allow"].split(", ")) == allowed


def test_head_and_options_answer_without_a_body(http: FlaskClient) -> None:
    head = http.head("/tasks")
    assert (head.status_code, head.data) == (200, b"")
    options = http.options("/tasks")
    assert (options.status_code, options.data) == (200, b"")
    assert "POST" in options.headers["Allow"]


def test_a_trailing_slash_changes_nothing(gateway: Gateway) -> None:
    task_id = gateway.submit()
    for path in ("/tasks", f"/tasks/{task_id}", "/health", "/dlq/failed-tasks"):
        assert gateway.http.get(path + "/").status_code == gateway.http.get(path).status_code == 200


@pytest.mark.parametrize(
    ("accept", "status"),
    [("*/*", 200), ("application/json", 200), ("application/*", 200), ("text/html,*/*;q=0.1", 200), ("text/html", 406)],
)
def test_only_a_caller_who_rules_json_out_gets_a_406(http: FlaskClient, accept: str, status: int) -> None:
    assert http.get("/tasks", headers={"Accept": accept}).status_code == status


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=10), inner, max_size=3),
    max_leaves=8,
)
FIELDS = ("delay", "run_at", "expires_in", "timeout", "max_retries", "retry", "tags", "priority", "data", "type", "x")


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.dictionaries(st.sampled_from(FIELDS), ANYTHING, max_size=5))
def test_no_body_whatever_makes_a_500(http: FlaskClient, body: dict[str, Any]) -> None:
    answer = http.post("/tasks", data=json.dumps({"type": "process", "data": 1} | body), content_type=JSON)
    assert answer.status_code in (202, 400, 422), answer.text
    assert answer.is_json or answer.content_type == "application/problem+json"


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.sampled_from(["/tasks", "/dlq/failed-tasks", "/tasks/some-id/result", "/health"]),
    st.dictionaries(
        st.sampled_from(["limit", "cursor", "status", "since", "until", "type", "tag", "priority", "wait", "x"]),
        st.text(max_size=30) | st.integers().map(str) | st.from_regex(r"\d{1,25}_[A-Z0-9]{1,30}", fullmatch=True),
        max_size=3,
    ),
)
def test_no_query_whatever_makes_a_500(http: FlaskClient, path: str, query: dict[str, str]) -> None:
    query = {name: value for name, value in query.items() if name != "wait"}
    try:
        answer = http.get(path, query_string=query)
    except UnicodeEncodeError:
        return  # half a surrogate pair cannot be put into an address
    assert answer.status_code in (200, 404, 422), answer.text
