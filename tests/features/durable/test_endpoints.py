"""Signals over HTTP."""

from __future__ import annotations

from typing import Any

import pytest

from firmq.shared.domain.step import StepKind, encode_step, with_schema
from firmq.shared.features.durable.store import DurableSteps
from tests.integration.gateway.driving import Gateway, problem
from tests.support.keys import keys


def send(gateway: Gateway, task_id: str, name: str = "approval", **body: Any) -> Any:
    return gateway.http.post(f"/tasks/{task_id}/signals/{name}", json=body)


def test_a_signal_is_stored_and_shown_and_audited(gateway: Gateway) -> None:
    task = gateway.submit()
    for _ in range(2):
        answer = send(gateway, task, data={"by": "Ann"})
        assert (answer.status_code, answer.json) == (200, {"task_id": task, "status": "pending"})
    [step] = gateway.show(task)["steps"]
    assert (step["name"], step["kind"], step["attempt"]) == ("signal:approval", "signal", 0)
    [entry, _] = gateway.http.get("/audit").get_json()["items"]
    assert (entry["what"], entry["about"], entry["detail"]) == ("signalled", task, "approval")


def test_other_data_is_a_conflict(gateway: Gateway) -> None:
    task = gateway.submit()
    assert send(gateway, task, data=1).status_code == 200
    refused = problem(send(gateway, task, data=2), 409, "wrong-state")
    assert refused["task_status"] == "pending"
    assert "already has it, with other data" in refused["detail"]
    assert send(gateway, task, data=2, replace=True).status_code == 200
    [entry, _] = gateway.http.get("/audit").get_json()["items"]
    assert (entry["what"], entry["about"], entry["detail"]) == ("signalled", task, "approval, replaced")


def test_an_ended_task_takes_no_signal(gateway: Gateway) -> None:
    task = gateway.submit()
    gateway.start()
    gateway.complete(task, None)
    assert "the task has ended" in problem(send(gateway, task), 409, "wrong-state")["detail"]
    problem(send(gateway, "unknown"), 404, "not-found")


@pytest.mark.parametrize("name", [".x", "x" * 95])
def test_a_name_that_cannot_be_one_is_refused(gateway: Gateway, name: str) -> None:
    refused = problem(send(gateway, gateway.submit(), name), 422, "invalid-request")
    assert "is not a name of a signal" in refused["detail"]


def test_an_unknown_member_is_refused(gateway: Gateway) -> None:
    problem(send(gateway, gateway.submit(), payload=1), 422, "invalid-request")


def waiting(gateway: Gateway) -> str:
    """A task that waits for a signal of a type."""
    task = gateway.submit()
    assert gateway.start() == [task]
    until = gateway.scripts.now_us() + 10**9
    schema = {"type": "object", "properties": {"approved": {"type": "boolean"}}, "required": ["approved"]}
    record = encode_step(StepKind.WAIT, b"null", attempt=1, started_us=1, ended_us=until)
    DurableSteps(gateway.scripts, task, "token-1", most=9, most_bytes=9999).save(
        "signal:approval", with_schema(record, schema)
    )
    return task


def test_data_that_does_not_fit_is_refused_with_its_field(gateway: Gateway) -> None:
    task = waiting(gateway)
    before = gateway.redis.dump(keys.rq_job(task))
    refused = problem(send(gateway, task, data={"approved": "perhaps"}), 422, "invalid-request")
    assert [each["field"] for each in refused["errors"]] == ["data.approved"]
    assert "send an object with approved" in problem(send(gateway, task), 422, "invalid-request")["detail"]
    assert gateway.redis.dump(keys.rq_job(task)) == before
    assert send(gateway, task, data={"approved": False}).status_code == 200
    assert send(gateway, task, data={"approved": 1}, replace=True).status_code == 422
    assert send(gateway, task, data={"approved": True}, replace=True).status_code == 200
