"""The Python client and the command line send signals."""

from __future__ import annotations

from datetime import timedelta

import pytest

from firmq.shared.client import Client, Conflict
from firmq.shared.domain.task import TaskState
from tests.integration.client.test_cli import Command, run

__all__ = ["run"]


def test_a_signal_is_given_once(client: Client) -> None:
    task = client.submit("echo", 1, delay=timedelta(hours=1)).task_id
    assert client.signal(task, "approval", {"by": "Ann"}).status is TaskState.SCHEDULED
    assert client.signal(task, "approval", {"by": "Ann"}).status is TaskState.SCHEDULED
    with pytest.raises(Conflict, match="already has it, with other data"):
        client.signal(task, "approval")
    [step] = client.get(task).steps
    assert (step.name, step.kind) == ("signal:approval", "signal")
    client.cancel(task)


def test_a_task_is_given_a_signal(run: Command) -> None:
    task = run("submit", "noop", "--delay", "3600").strip()
    assert run("signal", task, "approval", "--data", '{"by": "Ann"}') == f"{task} scheduled\n"
    run("signal", task, "approval", status=3)
    assert "already has it, with other data" in run.err
    assert [each["name"] for each in run.json("show", task)[0]["steps"]] == ["signal:approval"]
    run("cancel", task)
