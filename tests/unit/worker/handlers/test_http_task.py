"""Tasks of the type `http`, against real servers on this machine: what is sent, and what an answer leads to."""

from __future__ import annotations

import json
import ssl
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import pytest
import trustme

from firmq.shared.domain.egress_policy import EgressPolicy
from firmq.worker.handlers import pinned_http
from firmq.worker.handlers.context import CurrentTask
from firmq.worker.handlers.http_task import HttpCall, HttpCallFailed, Rules, call
from firmq.worker.handlers.pinned_http import Connection, resolve
from firmq.worker.handlers.signals import GiveUp, RetryLater
from tests.support.receiver import Receiver, dripping, receiving, saying

LOOPBACK = EgressPolicy.of(("*",), (80, 443), ("127.0.0.0/8",), "HTTP_TASK")
TASK = CurrentTask(id="01TASK", type="http", attempt=2, failures=1, traceparent=f"00-{1:032x}-{2:016x}-00")
JSON = {"Content-Type": "application/json; charset=utf-8"}


def rules(most: int = 10_000, egress_policy: EgressPolicy = LOOPBACK) -> Rules:
    return Rules(egress_policy=egress_policy, max_result_bytes=most, max_depth=20, longest_pause=600)


def made(data: dict[str, Any], allowed: Rules | None = None, ask: pinned_http.Resolve = resolve) -> dict[str, Any]:
    """The result of an attempt."""
    allowed = allowed or rules()
    return call(HttpCall.model_validate(data), Connection(allowed.egress_policy, ask), allowed, TASK)


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as there:
        yield there


# --- the request ---


def test_a_json_body_is_sent_with_the_id_of_the_task_and_its_trace(receiver: Receiver) -> None:
    made({"url": f"{receiver.url}?a=1", "method": "PUT", "body": {"order": 7, "name": "ö"}, "headers": {"X-Shop": "1"}})
    [(headers, body)] = receiver.got
    assert receiver.lines == ["PUT /hook?a=1"]
    assert json.loads(body) == {"order": 7, "name": "ö"}
    assert headers["content-type"] == "application/json"
    assert headers["idempotency-key"] == TASK.id
    assert headers["traceparent"] == TASK.traceparent
    assert headers["x-shop"] == "1"
    assert headers["host"] == f"127.0.0.1:{receiver.port}"


def test_a_text_is_sent_as_it_is_under_the_type_of_its_sender(receiver: Receiver) -> None:
    made({"url": receiver.url, "body": "a=1", "headers": {"content-type": "application/x-www-form-urlencoded"}})
    made({"url": receiver.url, "body": "schön", "headers": {"idempotency-key": "mine"}})
    (form, sent), (plain, text) = receiver.got
    assert (form["content-type"], sent) == ("application/x-www-form-urlencoded", b"a=1")
    assert (plain["content-type"], text.decode()) == ("text/plain; charset=utf-8", "schön")
    assert plain["idempotency-key"] == "mine"


def test_without_a_body_none_is_sent(receiver: Receiver) -> None:
    assert made({"url": receiver.url, "method": "GET"}) == {"status": 204, "headers": {}, "body": None}
    assert made({"url": receiver.url, "method": "HEAD"})["status"] == 204
    assert "content-type" not in receiver.got[0][0]


@pytest.mark.parametrize(
    ("headers", "problem"),
    [
        *(({name: "1"}, "is set by Firmq") for name in ("Host", "content-length", "Transfer-Encoding", "UPGRADE")),
        ({"X-A": "1", "x-a": "2"}, "appears twice"),
    ],
)
def test_headers_of_the_connection_are_refused(receiver: Receiver, headers: dict[str, str], problem: str) -> None:
    with pytest.raises(GiveUp, match=problem):
        made({"url": receiver.url, "headers": headers})
    assert not receiver.got


@pytest.mark.parametrize(
    "data",
    [
        {"headers": {"X-A": "1\r\nHost: evil"}},
        {"headers": {"X-A": "1\n"}},
        {"headers": {"X-A\n": "1"}},
        {"headers": {"X A": "1"}},
        {"headers": {"X-A:": "1"}},
        {"method": "CONNECT"},
        {"method": "GET / HTTP/1.1\r\n"},
        {"expect": []},
        {"expect": [100]},
        {"unknown": 1},
    ],
)
def test_what_is_no_call_is_invalid_data(data: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="validation error"):
        HttpCall.model_validate({"url": "https://shop.example/", **data})


# --- the answer ---


def test_the_answer_is_the_result(receiver: Receiver) -> None:
    receiver.answers = [(201, {**JSON, "Set-Cookie": "a=1", "ETag": "7"}, b'{"id": 7, "tags": []}')]
    assert made({"url": receiver.url}) == {
        "status": 201,
        "headers": {"content-type": "application/json; charset=utf-8", "etag": "7"},
        "body": {"id": 7, "tags": []},
    }


@pytest.mark.parametrize(
    "body", [b"not json", b"NaN", b'{"a":1,"a":2}', b"[" * 100 + b"]" * 100, b'"\\ud800"', b"1" * 2000]
)
def test_what_only_claims_to_be_json_is_text(receiver: Receiver, body: bytes) -> None:
    receiver.answers = [(200, JSON, body)]
    assert made({"url": receiver.url})["body"] == body.decode()


@pytest.mark.parametrize(
    ("kind", "body", "text"),
    [("text/plain", "schön".encode(), "schön"), ("text/plain; charset=ISO-8859-1", b"sch\xf6n", "schön")],
)
def test_a_text_comes_back_in_its_charset(receiver: Receiver, kind: str, body: bytes, text: str) -> None:
    receiver.answers = [(200, {"Content-Type": kind}, body)]
    assert made({"url": receiver.url})["body"] == text


@pytest.mark.parametrize("character", ["x", "ö", "\U0001f600", "\0"])
@pytest.mark.parametrize("headers", [{}, JSON])
def test_a_huge_answer_is_cut_to_what_a_result_may_have(
    receiver: Receiver, character: str, headers: dict[str, str]
) -> None:
    receiver.answers = [(200, headers, json.dumps(character * 1_000_000, ensure_ascii=False).encode())]
    result = made({"url": receiver.url})
    assert result["truncated"]
    assert result["body"].startswith('"' + (character if character != "\0" else "\\u0000"))
    assert 9_000 < len(json.dumps(result, separators=(",", ":"))) <= 10_000


def test_json_that_grows_in_a_result_is_cut(receiver: Receiver) -> None:
    receiver.answers = [(200, JSON, json.dumps("ö" * 4000, ensure_ascii=False).encode())]
    result = made({"url": receiver.url})
    assert result["truncated"]
    assert len(json.dumps(result, separators=(",", ":"))) <= 10_000


@pytest.mark.parametrize("status", [400, 401, 404, 409, 422])
def test_a_refusal_is_final_with_what_was_said(receiver: Receiver, status: int) -> None:
    receiver.answers = [(status, {}, b"no such order")]
    with pytest.raises(GiveUp, match=f"POST .* answered {status}: 'no such order'"):
        made({"url": receiver.url})


@pytest.mark.parametrize("status", [408, 425, 429, 500, 502, 503, 504])
def test_a_passing_trouble_is_retried(receiver: Receiver, status: int) -> None:
    receiver.answers = [(status, {}, b"")]
    with pytest.raises(HttpCallFailed, match=f"answered {status}"):
        made({"url": receiver.url})


@pytest.mark.parametrize(("says", "seconds"), [("7", 7), ("0", 1), ("99999", 600)])
def test_retry_after_is_honoured_within_reason(receiver: Receiver, says: str, seconds: int) -> None:
    receiver.answers = [(503, {"Retry-After": says}, b"")]
    with pytest.raises(RetryLater) as later:
        made({"url": receiver.url})
    assert later.value.delay == timedelta(seconds=seconds)


def test_retry_after_may_be_a_date(receiver: Receiver) -> None:
    receiver.answers = [(429, {"Retry-After": format_datetime(datetime.now(UTC) + timedelta(minutes=2), True)}, b"")]
    with pytest.raises(RetryLater) as later:
        made({"url": receiver.url})
    assert timedelta(seconds=100) < later.value.delay <= timedelta(seconds=120)


def test_expected_statuses_complete_the_task_and_no_others(receiver: Receiver) -> None:
    receiver.answers = [(404, {}, b""), (503, {}, b""), (204, {}, b"")]
    assert made({"url": receiver.url, "expect": [404, 503]})["status"] == 404
    assert made({"url": receiver.url, "expect": [404, 503]})["status"] == 503
    with pytest.raises(GiveUp, match="answered 204"):
        made({"url": receiver.url, "expect": [404]})


def test_a_redirect_is_not_followed(receiver: Receiver) -> None:
    receiver.answers = [(302, {"Location": "http://169.254.169.254/"}, b"")] * 2
    with pytest.raises(GiveUp, match="answered 302; a redirect is not followed"):
        made({"url": receiver.url})
    shown = made({"url": receiver.url, "expect": [302]})
    assert shown["headers"] == {"location": "http://169.254.169.254/"}
    assert len(receiver.got) == 2


def test_the_query_of_a_url_is_in_no_error(receiver: Receiver) -> None:
    receiver.answers = [(404, {}, b"")]
    with pytest.raises(GiveUp) as refused:
        made({"url": f"{receiver.url}?key=hidden"})
    assert "hidden" not in str(refused.value)


# --- servers that misbehave ---


@pytest.mark.parametrize(
    "words",
    [
        b"",
        b"SSH-2.0-inner\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nshort",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nshort",
        b"HTTP/1.1 200 OK\r\n" + b"A: b\r\n" * 200 + b"\r\n",
    ],
)
def test_a_server_that_hangs_up_or_speaks_no_http_is_tried_again(words: bytes) -> None:
    with saying(words) as port, pytest.raises(HttpCallFailed, match="did not send a valid HTTP response") as failed:
        made({"url": f"http://127.0.0.1:{port}/"})
    assert "inner" not in str(failed.value)


def test_an_answer_without_an_end_is_read_up_to_the_bound() -> None:
    with dripping(b"HTTP/1.1 200 OK\r\n\r\n" + b"y" * 500) as port:
        result = made({"url": f"http://127.0.0.1:{port}/"}, rules(most=400))
    assert result["truncated"]
    assert result["body"].startswith("yyy")


def test_a_server_that_is_away_is_tried_again() -> None:
    with pytest.raises(HttpCallFailed, match="ConnectionRefusedError"):
        made({"url": "http://127.0.0.1:1/"})


def test_certificates_are_verified(monkeypatch: pytest.MonkeyPatch) -> None:
    authority = trustme.CA()
    serving = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("127.0.0.1").configure_cert(serving)
    with receiving(tls=serving) as receiver:
        with pytest.raises(HttpCallFailed, match="CERTIFICATE_VERIFY_FAILED"):
            made({"url": receiver.url})
        trusting = ssl.create_default_context()
        authority.configure_trust(trusting)
        monkeypatch.setattr(pinned_http, "_tls", lambda: trusting)
        receiver.answers = [(200, {}, b"over TLS")]
        assert made({"url": receiver.url})["body"] == "over TLS"
        there = EgressPolicy.of(("*",), (443,), ("localhost",))
        with pytest.raises(HttpCallFailed, match="not valid for 'localhost'"):
            made({"url": receiver.url.replace("127.0.0.1", "localhost")}, rules(egress_policy=there))


# --- where calls may go ---


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("http://127.0.0.1/", "add it to HTTP_TASK_ALLOW"),
        ("http://169.254.169.254/latest/meta-data", "not a public address"),
        ("http://2130706433/", "another form"),
        ("http://[::ffff:10.0.0.1]/", "not a public address"),
        ("http://redis.internal/", "internal network"),
        ("http://other.example/", "not in HTTP_TASK_HOSTS"),
        ("https://api.shop.example:22/", "uses port 22"),
        ("https://me:secret@api.shop.example/", "user or a password"),
        ("file:///etc/passwd", "must begin with https"),
    ],
)
def test_addresses_that_are_not_allowed_are_final(url: str, problem: str) -> None:
    hosts = ("*.shop.example", "127.0.0.1", "169.254.169.254", "2130706433", "::ffff:10.0.0.1", "redis.internal")
    closed = EgressPolicy.of(hosts, (80, 443), (), "HTTP_TASK")
    with pytest.raises(GiveUp, match=problem):
        made({"url": url}, rules(egress_policy=closed))


def test_a_name_that_leads_inside_is_refused_and_one_address_of_it_is_called(receiver: Receiver) -> None:
    asked: list[str] = []

    def ask(host: str, port: int) -> Sequence[str]:
        asked.append(host)
        return ["93.184.215.14", "10.0.0.1"] if host == "mixed.example" else ["127.0.0.1"]

    with pytest.raises(GiveUp, match=r"10\.0\.0\.1 is not a public address"):
        made({"url": "http://mixed.example/"}, rules(egress_policy=EgressPolicy(hosts=("*",))), ask)
    there = EgressPolicy.of(("*",), (receiver.port,), ("127.0.0.0/8",))
    made({"url": f"http://shop.example:{receiver.port}/"}, rules(egress_policy=there), ask)
    assert asked == ["mixed.example", "shop.example"], "a name is resolved once"
    assert receiver.got[0][0]["host"] == f"shop.example:{receiver.port}"
