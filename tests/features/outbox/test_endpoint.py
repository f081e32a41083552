"""POST /tasks/outbox: each row by itself, and once."""

from __future__ import annotations

import time
from typing import Any

from flask.testing import FlaskClient

from firmq.shared.domain.task import new_task_id
from firmq.shared.features.outbox.keys import OutboxKeys
from tests.integration.gateway.driving import Gateway
from tests.support.keys import keys


def row(**body: Any) -> dict[str, Any]:
    return {"task_id": new_task_id(), "type": "process", "data": None, **body}


def send(http: FlaskClient, *rows: Any, settled: tuple[str, ...] = ()) -> tuple[int, list[dict[str, Any]]]:
    answer = http.post("/tasks/outbox", json={"rows": rows, "settled": settled})
    return answer.status_code, answer.json["items"]  # type: ignore[index]


def test_a_row_becomes_the_task_with_its_id(gateway: Gateway) -> None:
    trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    one = row(data={"a": 1}, priority="high", tags=["x"], traceparent=trace)
    assert send(gateway.http, one) == (202, [{"index": 0, "task_id": one["task_id"], "status": "pending"}])
    shown = gateway.show(one["task_id"])
    assert (shown["data"], shown["queue"], shown["tags"]) == ({"a": 1}, "high", ["x"])
    assert shown["trace_parent"] == trace


def test_a_repeated_row_stores_nothing_and_is_not_counted(gateway: Gateway) -> None:
    one = row()
    first, again = send(gateway.http, one), send(gateway.http, one)
    assert first == again
    assert gateway.redis.zcard(keys.TASKS) == 1
    metrics = gateway.http.get("/metrics").text
    assert 'task_submissions_total{priority="normal",type="process"} 1.0' in metrics


def test_an_invalid_row_has_its_problem_and_affects_no_other(gateway: Gateway) -> None:
    good = row()
    bad = (row(type="unknown"), row(task_id="no ulid"), row(priority="none"), "no object", row(type="resize", data={}))
    status, items = send(gateway.http, bad[0], good, *bad[1:])
    assert status == 207
    assert [each["problem"]["status"] for each in items if "problem" in each] == [422] * 5
    assert items[1]["task_id"] == good["task_id"]


def test_a_settled_row_is_remembered_for_the_time_of_idempotency_keys(gateway: Gateway) -> None:
    one = row()
    send(gateway.http, one)
    before = gateway.redis.pttl(OutboxKeys.beside(keys).receipt(one["task_id"]))
    assert send(gateway.http, settled=(one["task_id"],)) == (202, [])
    assert gateway.redis.pttl(OutboxKeys.beside(keys).receipt(one["task_id"])) <= 86_400_000 < before


def test_a_relay_without_rows_is_missed_when_it_stops(gateway: Gateway) -> None:
    def notes() -> list[str]:
        return [each for each in gateway.http.get("/health").json["notes"] if "rows of the outbox" in each]  # type: ignore[index]

    assert send(gateway.http) == (202, [])
    assert not notes()
    gateway.redis.zadd(keys.PRESENCE, {"relay": 1e6 * (time.time() - 120)})
    assert len(notes()) == 1


def test_a_task_cannot_have_the_id_of_this_path(gateway: Gateway) -> None:
    assert gateway.http.get("/tasks/outbox").status_code == 405
