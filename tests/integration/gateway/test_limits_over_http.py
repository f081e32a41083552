"""Limits and keys of tasks over HTTP."""

from __future__ import annotations

from typing import Any

import pytest
from flask.testing import FlaskClient

from tests.integration.gateway.driving import Gateway, problem


def test_a_limit_is_set_shown_changed_and_removed(http: FlaskClient) -> None:
    new = http.put("/limits/types/process", json={"concurrency": 2, "rate": "10/s"})
    assert new.status_code == 201
    assert new.get_json()["rate"] == "10/s"
    changed = http.put("/limits/types/process", json={"concurrency": 3})
    assert changed.status_code == 200
    assert http.get("/limits/types/process").get_json() == changed.get_json()
    assert [each["name"] for each in http.get("/limits").get_json()["items"]] == ["type:process"]
    assert http.delete("/limits/types/process").get_json() == {"name": "type:process", "removed": True}
    problem(http.get("/limits/types/process"), 404, "not-found")
    problem(http.delete("/limits/keys/process"), 404, "not-found")


@pytest.mark.parametrize(
    "body",
    [
        {"concurrency": -1},
        {"concurrency": 1.5},
        {"concurrency": True},
        {"rate": "10"},
        {"rate": "0/s"},
        {"rate": 10},
        {"rate": "1/0s"},
        {"burst": 5},
        {"rate": "1/s", "burst": 0},
        {"rates": "1/s"},
    ],
)
def test_what_is_no_limit_is_refused(http: FlaskClient, body: Any) -> None:
    problem(http.put("/limits/keys/partner", json=body), 422, "invalid-request")


def test_a_task_says_which_key_it_is_under_and_what_it_waits_for(gateway: Gateway) -> None:
    gateway.http.put("/limits/keys/partner", json={"concurrency": 1})
    first, second = (gateway.submit(limit_key="partner", fair_key="ann") for _ in range(2))
    assert gateway.start() == [first]
    shown = gateway.show(second)
    assert (shown["status"], shown["limit_key"], shown["fair_key"], shown["throttled_by"]) == (
        "pending",
        "partner",
        "ann",
        "key:partner",
    )
    [limit] = gateway.http.get("/limits").get_json()["items"]
    assert (limit["running"], limit["waiting"]) == (1, 1)
    pending = sum(each["pending"] for each in gateway.http.get("/queues").get_json()["items"])
    assert pending == 1
    gateway.complete(first)
    assert gateway.start() == [second]


def test_an_unlimited_limit_lifts_nothing_that_is_not_there(http: FlaskClient) -> None:
    shown = http.put("/limits/types/process", json={}).get_json()
    assert (shown["concurrency"], shown["rate"], shown["tokens"]) == (None, None, None)


KEYED = {"Idempotency-Key": "k"}


def test_the_existing_task_is_answered_with_its_own_priority(gateway: Gateway) -> None:
    first = gateway.submit(unique_key="customer-7", priority="low")
    body = {"type": "process", "data": 1, "unique_key": "customer-7", "on_conflict": "existing", "priority": "high"}
    alone, once, again = (gateway.http.post("/tasks", json=body, headers=each) for each in ({}, KEYED, KEYED))
    for answer in (alone, once, again):
        shown = answer.get_json()
        assert (answer.status_code, shown["task_id"], shown["queue"]) == (200, first, "low")
    assert again.headers["Idempotency-Replayed"] == "true"


def test_unique_keys_over_http(gateway: Gateway) -> None:
    first = gateway.submit(unique_key="customer-7")
    refused = gateway.http.post("/tasks", json={"type": "process", "data": 1, "unique_key": "customer-7"})
    told = problem(refused, 409, "not-unique")
    assert (told["existing_task"], told["task_status"]) == (first, "pending")
    body = {"type": "process", "data": 1, "unique_key": "customer-7"}
    existing = gateway.http.post("/tasks", json={**body, "on_conflict": "existing"})
    assert (existing.status_code, existing.get_json()["task_id"]) == (200, first)
    assert existing.headers["Location"] == f"/tasks/{first}"
    replaced = gateway.http.post("/tasks", json={**body, "on_conflict": "replace", "unique_until": 60})
    assert replaced.status_code == 202
    assert gateway.show(first)["status"] == "cancelled"
    batch = gateway.http.post("/tasks/batch", json={"tasks": [body, {"type": "process", "data": 1}]})
    assert batch.status_code == 207
    assert batch.get_json()["items"][0]["problem"]["existing_task"] == replaced.get_json()["task_id"]
    alone = gateway.http.post("/tasks", json={"type": "process", "data": 1, "unique_until": "end"})
    problem(alone, 422, "invalid-request")
