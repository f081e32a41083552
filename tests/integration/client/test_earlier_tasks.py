"""Batches from earlier tasks, by the client and on the command line."""

from __future__ import annotations

import json

import pytest

from firmq.shared.cli.main import main
from firmq.shared.client import Client, NotFound, new_task
from firmq.shared.domain.task import new_task_id
from tests.integration.client.conftest import Running

AGAIN = new_task("echo", {"of": {"$from": "id"}, "result": {"$from": "result"}})


@pytest.fixture(scope="module", autouse=True)
def worker(running: Running) -> None:
    running.system.start_worker(TASK_MODULES="tests.support.handlers")


def test_the_client_creates_a_batch_from_a_filter_and_from_a_batch(client: Client) -> None:
    tag = new_task_id()
    ids = []
    for number in range(3):
        ids.append(client.submit("echo", number, tags=[tag]).task_id)
        assert client.result(ids[-1], 20) == number
    made = client.batches.create_from(AGAIN, name="again", tag=tag, status="completed", idempotency_key=tag)
    assert (made.accepted, made.refused) == (3, 0)
    assert client.batches.wait(made.batch_id, 20).counts["completed"] == 3
    results = [client.result(str(each.task_id), 20) for each in made.items]
    assert results == [{"of": each, "result": n} for n, each in enumerate(ids)]
    assert client.batches.create_from(AGAIN, name="again", tag=tag, status="completed", idempotency_key=tag) == made
    third = client.batches.create_from(new_task("echo", {"$from": "result.of"}), batch_id=made.batch_id)
    client.batches.wait(third.batch_id, 20)
    assert [client.result(str(each.task_id), 20) for each in third.items] == ids
    with pytest.raises(NotFound):
        client.batches.create_from(AGAIN, batch_id="none")


def test_the_command_line_creates_it_too(running: Running, client: Client, capsys: pytest.CaptureFixture[str]) -> None:
    tag = new_task_id()
    client.result(client.submit("echo", {"a": 1}, tags=[tag]).task_id, 20)
    client.result(client.submit("echo", 2, tags=[tag]).task_id, 20)
    task = json.dumps({"type": "echo", "data": {"$from": "result.a"}})
    assert main(["--url", running.url, "batch-from", task, "--tag", tag, "--status", "completed"]) == 1
    refused, summary = capsys.readouterr().out.splitlines()
    assert refused.startswith("task 1 refused: Invalid request: task.data: there is no result.a in the record of task")
    assert summary.endswith("1 accepted, 1 refused")
    with pytest.raises(SystemExit):
        main(["--url", running.url, "batch-from", "[]", "--tag", "cli"])
    assert "must be a JSON object with a type" in capsys.readouterr().err
