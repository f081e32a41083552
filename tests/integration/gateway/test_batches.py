"""Submitting many tasks at once."""

from __future__ import annotations

from typing import Any

from shared.records import Records
from shared.tasks import TaskState
from tests.integration.gateway.driving import QUEUES, Gateway


def submit(gateway: Gateway, tasks: Any) -> Any:
    return gateway.http.post("/tasks/batch", json={"tasks": tasks})


def test_every_task_of_a_batch_is_stored_and_answered_in_its_place(gateway: Gateway) -> None:
    answer = submit(gateway, [{"type": "process", "data": f"text {n}"} for n in range(1200)])
    assert answer.status_code == 202
    assert (answer.json["accepted"], answer.json["refused"]) == (1200, 0)
    for n in (0, 499, 500, 1199):
        assert gateway.show(answer.json["items"][n]["task_id"])["data"] == f"text {n}"
    assert Records(gateway.scripts, QUEUES).counts()[TaskState.PENDING] == 1200


def test_a_wrong_task_is_refused_by_itself_and_says_why(gateway: Gateway) -> None:
    answer = submit(
        gateway,
        [
            {"type": "process", "data": "good"},
            {"type": "process", "data": "late", "delay": -1},
            {"type": "nonsense", "data": 1},
            "no object",
            {"type": "process", "data": "good too", "priority": "high"},
        ],
    )
    assert answer.status_code == 207
    assert (answer.json["accepted"], answer.json["refused"]) == (2, 3)
    first, late, unknown, text, last = answer.json["items"]
    assert first["status"] == last["status"] == "pending"
    assert late["problem"]["errors"][0]["field"] == "delay"
    assert unknown["problem"]["type"] == "/problems/unknown-task-type"
    assert "JSON object" in text["problem"]["detail"]
    assert Records(gateway.scripts, QUEUES).counts()[TaskState.PENDING] == 2


def test_a_batch_is_bounded(gateway: Gateway) -> None:
    assert submit(gateway, []).status_code == 422
    assert submit(gateway, [0] * 10_001).status_code == 422
