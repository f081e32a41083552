"""Signals over HTTP."""

from __future__ import annotations

from typing import Any

import pytest

from tests.integration.gateway.driving import Gateway, problem


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
