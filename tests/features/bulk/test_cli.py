"""The commands for many tasks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.integration.client.test_cli import Command, run
from tests.support.harness import wait_until

__all__ = ["run"]


def test_of_all_dead_letters_those_of_a_stopped_batch_are_left_and_named(run: Command, tmp_path: Path) -> None:
    file = tmp_path / "tasks.ndjson"
    file.write_text('{"type": "fail", "data": {"message": "stop"}, "max_retries": 0}\n')
    run("batch", str(file), "--stop-on-error", "1", "--watch", status=1)
    alone = run("submit", "fail", '{"message": "alone"}', "--max-retries", "0").strip()
    run("watch", alone, status=1)
    [stays] = [each["task_id"] for each in run.json("dlq", "list") if each["error"]["message"] == "stop"]
    assert "1 left: they have changed, or their batches are stopped\n" in run("dlq", "retry", "--all", status=1)
    run("watch", alone, status=1)
    assert {stays, alone} <= {each["task_id"] for each in run.json("dlq", "list")}
    run("dlq", "retry", stays, status=3)
    run("dlq", "delete", "--all")
    kinds = [each["detail"].partition(":")[0] for each in run.json("audit", "--what", "bulk", "--limit", "2")]
    assert kinds == ["delete", "retry"]  # one row each, however many tasks


def test_dead_letters_are_retried_with_changed_data(run: Command) -> None:
    for text in ("no ink", "no paper"):
        run("watch", run("submit", "fail", json.dumps({"message": text}), "--max-retries", "0").strip(), status=1)
    change = ("dlq", "retry", "--all", "--type", "fail", "--set", "message=changed")
    shown = run(*change)
    assert '{"message": "no ink"} -> {"message": "changed"}' in shown
    assert "2 of 2 that were checked can have the changed data" in shown
    assert "0 of 2" in run(*change[:-1], "message=[1]", status=1)
    run(*change[:-1], "message=[1]", "--yes", status=3)
    assert "2 of 2 done" in run(*change, "--yes")
    wait_until(
        lambda: {_message(each) for each in run.json("dlq", "list", "--type", "fail")} == {"changed"},
        "both ran with it",
    )
    assert 'with data changed by {"message": "changed"}' in run.json("audit", "--limit", "1")[0]["detail"]
    run("dlq", "delete", "--all")


def _message(dead: dict[str, Any]) -> str:
    return str(dead["error"]["message"])


def test_many_tasks_are_counted_and_then_cancelled(run: Command) -> None:
    ids = [run("submit", "noop", "--delay", "3600", "--tag", "bulk-of-cli").strip() for _ in range(3)]
    shown = run("bulk", "cancel", "--tag", "bulk-of-cli")
    assert "3 tasks; nothing was changed" in shown
    assert all(each in shown for each in ids)
    assert "2 tasks; nothing was changed" in run("bulk", "cancel", "--tag", "bulk-of-cli", "--limit", "2")
    [made] = run.json("batch-from", '{"type": "noop", "data": null}', "--tag", "bulk-of-cli", "--limit", "1")
    assert made["accepted"] == 1
    [ended] = run.json("bulk", "cancel", "--tag", "bulk-of-cli", "--rate", "1000", "--yes", "--wait")
    assert (ended["status"], ended["done"]) == ("finished", 3)
    assert {run.json("show", each)[0]["status"] for each in ids} == {"cancelled"}
    assert "tag=bulk-of-cli" in run("bulk", "list")
    assert run.json("bulk", "show", ended["action_id"])[0]["total"] == 3
    run("bulk", "pause", ended["action_id"], status=3)
    assert "start another" in run.err
    run("bulk", "move", "--type", "noop", "--to", "nowhere", "--yes", status=3)
    [emptied] = run.json("queues", "empty", "low", "--rate", "10")
    assert emptied["action"] == "cancel"


def test_all_dead_letters_of_a_type_are_removed(run: Command) -> None:
    run("submit", "fail", "{}", "--max-retries", "0", "--watch", status=1)
    run("dlq", "delete", "--all", "--type", "fail")
    assert run("dlq", "list", "--type", "fail") == "none\n"
