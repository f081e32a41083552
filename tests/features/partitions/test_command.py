"""The command `firmq partitions`."""

from __future__ import annotations

import json
import threading
from typing import Any

import pytest

from firmq.__main__ import main
from firmq.shared.config.settings import Settings
from tests.features.partitions.conftest import Routed

Run = Any


@pytest.fixture
def run(routed: Routed, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    monkeypatch.setattr("firmq.shared.features.partitions.command.load_or_exit", lambda: routed.settings)
    monkeypatch.setattr("firmq.shared.features.partitions.command.LOOK_EVERY", 0.01)

    def run(*words: str) -> tuple[int, str, str]:
        status = main(["partitions", *words])
        printed = capsys.readouterr()
        return status, printed.out, printed.err

    return run


def finish(routed: Routed, task_id: str) -> None:
    assert routed.http.delete(f"/tasks/{task_id}").status_code == 200


def test_the_list_has_a_line_for_each_partition(routed: Routed, run: Run) -> None:
    finish(routed, routed.submit_to(1))
    routed.submit_to(1)
    run("drain", "2")
    status, out, _ = run()
    lines = [line.split() for line in out.splitlines()]
    assert status == 0
    assert [line[0] for line in lines] == ["PARTITION", "0", "1", "2"]
    assert [line[-5:] for line in lines[1:]] == [
        ["active", "0", "0", "0", "0"],
        ["active", "1", "0", "2", "0"],
        ["draining", "0", "0", "0", "0"],
    ]
    assert "@" not in out, "no passwords"


def test_the_list_is_also_json(routed: Routed, run: Run) -> None:
    routed.submit_to(0)
    _, out, _ = run("--json")
    first, _, _ = map(json.loads, out.splitlines())
    assert {name: first[name] for name in ("number", "state", "open_tasks", "dead_letters")} == {
        "number": 0,
        "state": "active",
        "open_tasks": 1,
        "dead_letters": 0,
    }


def test_a_partition_that_does_not_answer_is_away(
    routed: Routed, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = Settings.model_validate({"redis_partitions": ("redis://127.0.0.1:1/0", "redis://127.0.0.1:1/1")})
    monkeypatch.setattr("firmq.shared.features.partitions.command.load_or_exit", lambda: settings)
    assert main(["partitions"]) == 0
    assert capsys.readouterr().out.count("unavailable") == 2
    assert main(["partitions", "drain", "0"]) == 3
    assert "the last active partition" in capsys.readouterr().err
    assert main(["partitions", "activate", "0"]) == 5
    assert "partition 0: Redis does not answer" in capsys.readouterr().err


def test_draining_names_the_page_with_the_next_steps(run: Run) -> None:
    status, out, _ = run("drain", "1")
    assert (status, "docs/deploy/scaling.md" in out) == (0, True)


def test_the_last_active_partition_is_not_drained(run: Run) -> None:
    assert [run("drain", number)[0] for number in "012"] == [0, 0, 3]
    assert run()[1].count("draining") == 2
    assert run("activate", "0")[1] == "partition 0 is active: it takes new tasks\n"
    assert run("drain", "2")[0] == 0
    assert run("activate", "0")[1] == "partition 0 is already active\n"


def test_an_unknown_partition_is_refused_with_the_known_ones(run: Run) -> None:
    for action in ("drain", "activate"):
        status, _, error = run(action, "7")
        assert (status, error.startswith("firmq: no partition 7: choose one of 0, 1, 2, or add it")) == (2, True)


def test_waiting_ends_with_the_last_open_task(routed: Routed, run: Run) -> None:
    task_id = routed.submit_to(1)
    timer = threading.Timer(0.3, finish, (routed, task_id))
    timer.start()
    status, out, _ = run("drain", "1", "--wait")
    timer.join()
    assert status == 0
    assert "partition 1: 1 open tasks\n" in out
    assert routed.get(f"/tasks/{task_id}")["status"] == "cancelled"


def test_one_server_is_named_with_the_way_to_several(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = Settings(redis_url="redis://user:secret@redis:6379/0")
    monkeypatch.setattr("firmq.shared.features.partitions.command.load_or_exit", lambda: settings)
    for words in (["partitions"], ["partitions", "drain", "0"]):
        assert main(words) == 3
        error = capsys.readouterr().err
        assert "redis://redis:6379/0" in error
        assert "REDIS_PARTITIONS" in error
        assert "secret" not in error
