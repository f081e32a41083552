"""Looking at tasks, waiting for them, cancelling them, and their second life from the dead letters."""

from __future__ import annotations

import json
import re
import threading
import time
from datetime import datetime, timedelta
from typing import Any

import pytest

from firmq.gateway.app import create_app
from firmq.shared.domain.step import StepKind, encode_step
from firmq.shared.redis.client import raw
from tests.integration.gateway.conftest import MakeGateway
from tests.integration.gateway.driving import Gateway, problem
from tests.support.harness import wait_until
from tests.support.keys import keys


def test_a_completed_task_shows_its_result_and_its_attempt(gateway: Gateway) -> None:
    task_id = gateway.submit(data="x")
    gateway.start()
    assert gateway.show(task_id)["status"] == "running"
    assert gateway.show(task_id)["worker"] == "w1"
    gateway.complete(task_id, {"words": 1})
    shown = gateway.show(task_id)
    assert (shown["status"], shown["result"], shown["error"]) == ("completed", {"words": 1}, None)
    [attempt] = shown["attempts"]
    assert (attempt["number"], attempt["worker"], attempt["outcome"]) == (1, "w1", "completed")
    assert (attempt["wait_seconds"], attempt["run_seconds"]) == (1.0, 2.0)
    assert attempt["logs"] == ["one line"]
    assert attempt["ended_at"].endswith("Z")
    assert attempt["app_version"] is None
    record = json.loads(raw(gateway.redis.hget(keys.rq_job(task_id), "attempt:1")))
    versioned = json.dumps({**record, "app_version": "a1b2c3d"})
    gateway.redis.hset(keys.rq_job(task_id), "attempt:1", versioned)
    assert gateway.show(task_id)["attempts"] == [{**attempt, "app_version": "a1b2c3d"}]


def test_a_task_shows_its_steps_without_their_results(gateway: Gateway) -> None:
    task_id = gateway.submit()
    gateway.start()
    assert gateway.show(task_id)["steps"] == []
    started = 1_800_000_000_000_000
    record = encode_step(StepKind.RESULT, b'{"id":7}', attempt=2, started_us=started, ended_us=started + 500_000)
    gateway.redis.hset(keys.rq_job(task_id), "step:charge", record)
    assert gateway.show(task_id)["steps"] == [
        {
            "name": "charge",
            "kind": "result",
            "attempt": 2,
            "tries": 1,
            "started_at": "2027-01-15T08:00:00Z",
            "ended_at": "2027-01-15T08:00:00.500000Z",
            "seconds": 0.5,
            "size_bytes": 8,
        }
    ]


def test_a_retrying_task_says_why_and_when_it_runs_next(gateway: Gateway) -> None:
    task_id = gateway.submit()
    gateway.start()
    gateway.retry_later(task_id, 30)
    shown = gateway.show(task_id)
    assert (shown["status"], shown["retry_count"], shown["max_retries"]) == ("retrying", 1, 3)
    assert shown["error"]["message"] == "not yet"
    assert shown["attempts"][0]["retry_delay_seconds"] == 30
    waits = datetime.fromisoformat(shown["next_attempt_at"]) - datetime.fromisoformat(shown["created_at"])
    assert timedelta(seconds=29) < waits < timedelta(seconds=40)


def test_lists_leave_tracebacks_to_the_single_view(gateway: Gateway) -> None:
    task_id = gateway.submit()
    gateway.fail(task_id)
    [listed] = gateway.http.get("/tasks").get_json()["items"]
    assert listed["error"] == {"type": "ValueError", "message": "it broke", "place": "shop.pay", "traceback": None}
    assert gateway.show(task_id)["error"]["traceback"] == "Traceback ..."


def test_pages_lead_to_every_task_once_newest_first(gateway: Gateway) -> None:
    ids = [gateway.submit() for _ in range(7)]
    seen, cursor = [], ""
    while True:
        page = gateway.http.get(f"/tasks?limit=3{cursor}").get_json()
        seen += [item["task_id"] for item in page["items"]]
        if page["next_cursor"] is None:
            break
        cursor = f"&cursor={page['next_cursor']}"
    assert seen == ids[::-1]


def test_filters_narrow_the_list(gateway: Gateway) -> None:
    high = gateway.submit(priority="high", tags=["mail"])
    late = gateway.submit(delay=60)
    sized = gateway.submit(type="resize", data={"url": "x"}, tags=["mail", "eu"])
    for query, expected in (
        ("status=scheduled", {late}),
        ("status=pending", {high, sized}),
        ("type=resize", {sized}),
        ("priority=high", {high}),
        ("priority=default", {late, sized}),
        ("tag=mail", {high, sized}),
        ("tag=mail&priority=high", {high}),
        ("tag=nothing", set()),
        ("since=2001-01-01T00:00:00Z", {high, late, sized}),
        ("until=2001-01-01T00:00:00%2B01:00", set()),
        ("until=2001-01-01T00:00:00+01:00", set()),
    ):
        items = gateway.http.get(f"/tasks?{query}").get_json()["items"]
        assert {item["task_id"] for item in items} == expected, query


def test_a_waiting_task_is_cancelled_at_once_and_for_good(gateway: Gateway) -> None:
    task_id = gateway.submit(delay=60)
    answer = gateway.http.delete(f"/tasks/{task_id}?reason=not%20needed")
    assert (answer.status_code, answer.get_json()) == (200, {"task_id": task_id, "status": "cancelled"})
    assert gateway.show(task_id)["cancel_reason"] == "not needed"
    assert gateway.http.delete(f"/tasks/{task_id}").status_code == 200
    assert gateway.start() == []


def test_a_running_task_is_asked_to_stop(gateway: Gateway) -> None:
    task_id = gateway.submit()
    gateway.start()
    answer = gateway.http.delete(f"/tasks/{task_id}")
    assert (answer.status_code, answer.get_json()["status"]) == (202, "running")
    assert gateway.redis.llen(keys.control("w1")) == 1


def test_a_task_that_has_ended_cannot_be_cancelled(gateway: Gateway) -> None:
    task_id = gateway.submit()
    gateway.fail(task_id)
    body = problem(gateway.http.delete(f"/tasks/{task_id}"), 409, "wrong-state")
    assert body["task_status"] == "failed"
    assert "failed" in body["detail"]


def test_the_result_of_an_unfinished_task_is_a_202(gateway: Gateway) -> None:
    task_id = gateway.submit()
    answer = gateway.http.get(f"/tasks/{task_id}/result")
    assert (answer.status_code, answer.get_json()) == (202, {"task_id": task_id, "status": "pending"})
    assert answer.headers["Retry-After"]


def test_a_long_poll_ends_when_the_task_does(gateway: Gateway) -> None:
    task_id = gateway.submit()
    gateway.start()
    timer = threading.Timer(0.2, gateway.complete, (task_id, [1, 2]))
    timer.start()
    begun = time.monotonic()
    answer = gateway.http.get(f"/tasks/{task_id}/result?wait=20")
    timer.join()  # it may still wait for Redis' answer, on a connection that the end of the test closes
    assert time.monotonic() - begun < 20, "it does not wait to the end"
    assert (answer.status_code, answer.get_json()["result"]) == (200, [1, 2])


def test_the_result_of_a_failed_task_is_its_error(gateway: Gateway) -> None:
    task_id = gateway.submit()
    gateway.fail(task_id)
    body = gateway.http.get(f"/tasks/{task_id}/result").get_json()
    assert (body["status"], body["result"], body["error"]["type"]) == ("failed", None, "ValueError")


def test_a_poll_too_many_is_answered_at_once(make_gateway: MakeGateway) -> None:
    """Otherwise pollers could take every thread."""
    gateway = make_gateway(waiters=1)
    task_id = gateway.submit()
    first = threading.Thread(target=lambda: gateway.app.test_client().get(f"/tasks/{task_id}/result?wait=20"))
    first.start()
    wait_until(lambda: gateway.redis.info("clients")["blocked_clients"], "it waits")
    begun = time.monotonic()
    assert gateway.http.get(f"/tasks/{task_id}/result?wait=30").status_code == 202
    assert time.monotonic() - begun < 20, "it does not wait"
    gateway.start()
    gateway.complete(task_id)
    first.join()


def test_a_stopping_process_ends_all_waits(gateway: Gateway) -> None:
    task_id = gateway.submit()
    gateway.app.config["STOPPING"].set()
    begun = time.monotonic()
    assert gateway.http.get(f"/tasks/{task_id}/result?wait=30").status_code == 202
    assert time.monotonic() - begun < 30, "it does not wait"


def test_a_result_that_json_has_no_word_for_is_shown_as_null(gateway: Gateway) -> None:
    task_id = gateway.submit()
    gateway.start()
    gateway.complete(task_id, [float("nan"), "\ud800"])
    assert gateway.show(task_id)["result"] == [None, "\ufffd"]


@pytest.mark.parametrize(("stored", "shown"), [("\ud800", "\ufffd"), ({"\ud800": 1}, {"\ufffd": 1})])
def test_text_that_no_utf_8_can_hold_is_shown_with_a_sign_in_its_place(
    gateway: Gateway, stored: Any, shown: Any
) -> None:
    task_id, failed = gateway.submit(), gateway.submit()
    gateway.start()
    gateway.complete(task_id, stored)
    for address in (f"/tasks/{task_id}", f"/tasks/{task_id}/result"):
        answer = gateway.http.get(address)
        assert (answer.status_code, answer.get_json()["result"]) == (200, shown)
    gateway.retry_later(failed, 0)
    gateway.make_due(failed)
    gateway.fail(failed, "half: \udfff")
    assert gateway.show(failed)["error"]["message"] == "half: \ufffd"
    assert gateway.http.get("/dlq/failed-tasks").status_code == 200


# --- dead letters ---


def test_a_dead_letter_is_listed_retried_and_gone_from_the_list(gateway: Gateway) -> None:
    task_id = gateway.submit()
    gateway.fail(task_id, "no route")
    [letter] = gateway.http.get("/dlq/failed-tasks").get_json()["items"]
    assert (letter["task_id"], letter["status"], letter["error"]["message"]) == (task_id, "failed", "no route")
    answer = gateway.http.post(f"/dlq/failed-tasks/{task_id}/retry")
    assert (answer.status_code, answer.get_json()) == (202, {"task_id": task_id, "status": "pending"})
    assert gateway.http.get("/dlq/failed-tasks").get_json() == {"items": [], "next_cursor": None}
    assert gateway.show(task_id)["attempts"][0]["outcome"] == "failed"
    assert gateway.start() == [task_id]


def test_a_dead_letter_is_removed_for_good(gateway: Gateway) -> None:
    task_id = gateway.submit()
    gateway.fail(task_id)
    answer = gateway.http.delete(f"/dlq/failed-tasks/{task_id}")
    assert (answer.status_code, answer.get_json()) == (200, {"task_id": task_id, "removed": True})
    problem(gateway.http.get(f"/tasks/{task_id}"), 404, "not-found")
    problem(gateway.http.delete(f"/dlq/failed-tasks/{task_id}"), 404, "not-found")


@pytest.mark.parametrize("act", ["retry", "delete"])
def test_only_dead_letters_are_retried_or_removed(gateway: Gateway, act: str) -> None:
    path = f"/dlq/failed-tasks/{gateway.submit()}"
    answer = gateway.http.post(f"{path}/retry") if act == "retry" else gateway.http.delete(path)
    assert problem(answer, 409, "wrong-state")["task_status"] == "pending"


def test_dead_letters_are_filtered_by_type_and_time(gateway: Gateway) -> None:
    one, two = gateway.submit(), gateway.submit(type="resize", data={"url": "x"})
    gateway.fail(one)
    gateway.redis.delete(keys.claim("w1"))
    gateway.http.delete(f"/tasks/{two}")
    path = "/dlq/failed-tasks"
    assert len(gateway.http.get(f"{path}?type=process").get_json()["items"]) == 1
    assert gateway.http.get(f"{path}?type=resize").get_json()["items"] == []
    assert gateway.http.get(f"{path}?until=2001-01-01T00:00:00Z").get_json()["items"] == []
    problem(gateway.http.get(f"{path}?status=pending"), 422, "invalid-request")


# --- records that are broken ---


def test_a_record_that_is_no_record_is_called_corrupt(gateway: Gateway) -> None:
    gateway.redis.set(keys.rq_job("odd"), "x")
    problem(gateway.http.get("/tasks/odd"), 500, "corrupt-record")
    problem(gateway.http.get("/tasks/odd/result"), 500, "corrupt-record")


def test_a_damaged_record_is_shown_with_what_is_wrong(gateway: Gateway) -> None:
    task_id = gateway.submit()
    gateway.redis.hset(keys.rq_job(task_id), mapping={"data": "garbage", "tags": "not json"})
    shown = gateway.show(task_id)
    assert "cannot be read" in shown["corrupt"]
    assert gateway.http.get("/tasks").status_code == 200


@pytest.mark.parametrize("number", ["1e999", "-1e999", "NaN"])
def test_numbers_that_are_none_are_said_to_be_damage(gateway: Gateway, number: str) -> None:
    task_id = gateway.submit()
    for field, name in (("retry", "max_retries"), ("retry", "initial_delay"), ("progress", "fraction")):
        gateway.redis.hset(keys.rq_job(task_id), field, f'{{"{name}": {number}}}')
        assert re.match("corrupt record|.* cannot be read", gateway.show(task_id)["corrupt"])
        gateway.redis.hdel(keys.rq_job(task_id), field)
    assert gateway.show(task_id)["corrupt"] is None


def test_apps_share_nothing(gateway: Gateway, make_gateway: MakeGateway) -> None:
    other = make_gateway()
    assert other.app is not gateway.app
    assert create_app.__globals__.get("app") is None
