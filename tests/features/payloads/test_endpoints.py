"""Large data and results over HTTP: outside Redis, and as if they were in it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from firmq.shared.domain.payload import encode_result
from firmq.shared.features.payloads.stores import open_payload_store
from firmq.shared.stores.payloads import Payloads
from tests.integration.gateway.conftest import MakeGateway
from tests.integration.gateway.driving import Gateway
from tests.support.keys import keys

LARGE = "x" * 5000


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "payloads"
    made.mkdir()
    return made


@pytest.fixture
def gateway(make_gateway: MakeGateway, folder: Path) -> Gateway:
    return make_gateway(payload_store=f"file://{folder}", payload_threshold=1024)


def files(folder: Path) -> int:
    return sum(each.is_file() for each in folder.rglob("*"))


def in_redis(gateway: Gateway, task_id: str) -> int:
    return gateway.redis.hstrlen(keys.rq_job(task_id), "data")


def test_large_data_is_outside_redis_and_in_every_answer(gateway: Gateway, folder: Path) -> None:
    small, large = gateway.submit(data="x" * 500), gateway.submit(data=LARGE)
    assert in_redis(gateway, small) > 500
    assert in_redis(gateway, large) < 300
    assert files(folder) == 1
    assert gateway.show(large)["data"] == LARGE
    assert gateway.show(small)["data"] == "x" * 500


@pytest.mark.parametrize("options", [{}, {"unique_key": "u"}, {"tags": ["t"]}, {"delay": 60}])
def test_every_kind_of_submission_writes_the_payload(gateway: Gateway, options: Any) -> None:
    task = gateway.submit(data=LARGE, **options)
    assert in_redis(gateway, task) < 300
    assert gateway.show(task)["data"] == LARGE


def test_batches_and_outboxes_write_payloads(gateway: Gateway, folder: Path) -> None:
    tasks = [{"type": "process", "data": each} for each in (1, LARGE, LARGE)]
    body = {"tasks": tasks, "then": {"type": "process", "data": LARGE}}
    batch = gateway.http.post("/tasks/batch", json=body)
    assert batch.status_code == 202, batch.text
    assert files(folder) == 3, "one object for each large task, also the follow-up"
    items = batch.json["items"]  # type: ignore[index]
    assert gateway.show(items[2]["task_id"])["data"] == LARGE
    row = {"task_id": "01ARZ3NDEKTSV4RRFFQ69G5FAV", "type": "process", "data": LARGE}
    assert gateway.http.post("/tasks/outbox", json={"rows": [row]}).status_code == 202
    assert gateway.show(row["task_id"])["data"] == LARGE
    assert in_redis(gateway, row["task_id"]) < 300


def test_a_batch_that_is_sent_again_is_recognized(gateway: Gateway) -> None:
    batch = gateway.http.post("/batches", json={"name": "b"}).json["batch_id"]  # type: ignore[index]
    body = {"start": 0, "tasks": [{"type": "process", "data": LARGE}]}
    for _ in range(2):
        answer = gateway.http.post(f"/batches/{batch}/tasks", json=body)
        assert answer.json["accepted"] == 1, answer.text  # type: ignore[index]
    body["tasks"][0]["data"] = LARGE + "y"  # type: ignore[index]
    answer = gateway.http.post(f"/batches/{batch}/tasks", json=body)
    assert "different data" in answer.text


def test_a_repeated_request_gets_the_first_task(gateway: Gateway) -> None:
    body = {"type": "process", "data": LARGE}
    first, again = (gateway.http.post("/tasks", json=body, headers={"Idempotency-Key": "k"}).json for _ in range(2))
    assert first["task_id"] == again["task_id"]  # type: ignore[index]


def test_changed_data_becomes_a_payload_too(gateway: Gateway) -> None:
    task = gateway.submit(data=1, delay=60)
    assert gateway.http.patch(f"/tasks/{task}", json={"data": LARGE}).status_code == 200
    assert in_redis(gateway, task) < 300
    assert gateway.show(task)["data"] == LARGE


def test_a_large_result_is_in_the_answers(gateway: Gateway, folder: Path) -> None:
    task = gateway.submit()
    gateway.start()
    reference = Payloads(open_payload_store(f"file://{folder}"), 1024).keep(task, f'"{LARGE}"'.encode())
    gateway._report(task, "completed", payload=encode_result(reference))
    assert gateway.show(task)["result"] == LARGE
    assert gateway.http.get(f"/tasks/{task}/result").json["result"] == LARGE  # type: ignore[index]


def test_a_store_that_is_away_refuses_large_data_only(gateway: Gateway, folder: Path) -> None:
    task = gateway.submit(data=LARGE)
    folder.rename(folder.with_name("away"))
    for path, body in (
        ("/tasks", {"type": "process", "data": LARGE}),
        ("/tasks/batch", {"tasks": [{"type": "process", "data": LARGE}]}),
    ):
        refused = gateway.http.post(path, json=body, headers={"Idempotency-Key": path})
        assert refused.status_code == 503, refused.text
        assert refused.headers["Retry-After"] == "1"
        assert refused.json["type"] == "/problems/payload-store-unavailable"  # type: ignore[index]
        assert "is mounted" in refused.json["detail"]  # type: ignore[index]
    assert gateway.redis.zcard(keys.TASKS) == 1, "nothing was stored"
    gateway.submit(data="small")
    assert gateway.http.get(f"/tasks/{task}").status_code == 503
    assert gateway.http.patch(f"/tasks/{task}", json={"queue": "low"}).status_code == 200
    folder.with_name("away").rename(folder)
    assert gateway.show(task)["data"] == LARGE
    body = {"tasks": [{"type": "process", "data": LARGE}]}
    again = gateway.http.post("/tasks/batch", json=body, headers={"Idempotency-Key": "/tasks/batch"})
    assert again.status_code == 202, "the refusal did not use the key up"


def test_a_gateway_without_the_setting_says_so(gateway: Gateway, make_gateway: MakeGateway) -> None:
    task = gateway.submit(data=LARGE)
    refused = make_gateway().http.get(f"/tasks/{task}")
    assert (refused.status_code, "PAYLOAD_STORE is not set here" in refused.text) == (503, True)


def test_the_body_that_is_too_large_names_the_settings(make_gateway: MakeGateway) -> None:
    refused = make_gateway(max_body_bytes=1024).http.post("/tasks", json={"type": "process", "data": LARGE})
    assert refused.status_code == 413
    for name in ("MAX_BODY_BYTES", "PAYLOAD_STORE", "PAYLOAD_THRESHOLD"):
        assert name in refused.text


def test_a_result_that_looks_like_a_reference_is_none(gateway: Gateway) -> None:
    task = gateway.submit()
    gateway.start()
    result = {"payload": f"{task}.{'0' * 64}", "bytes": 3}
    gateway.complete(task, result)
    assert gateway.show(task)["result"] == result
