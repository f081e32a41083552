"""Tasks that go on as new ones, at real workers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from firmq.shared.domain.task import TaskState
from firmq.shared.errors import LeaseEnded
from firmq.shared.features.durable.signals import Signals
from firmq.shared.features.durable.store import DurableSteps
from tests.features.durable.handlers import calls
from tests.support.harness import System, wait_until
from tests.support.keys import keys


@pytest.mark.parametrize("kind", ["rounds", "rounds-async"])
def test_a_task_goes_on_without_its_steps(system: System, tmp_path: Path, kind: str) -> None:
    system.start_worker(TASK_MODULES="tests.features.durable.handlers")
    task = system.submit(kind, json.dumps({"folder": str(tmp_path), "last": 60}))
    found = system.ended(task)
    assert found.result == {"number": 60, "calls": 1, "said": None}
    assert [calls(tmp_path, f"round-{number}") for number in range(1, 61)] == [1] * 60
    assert (found.summary.attempt, len(found.attempts), len(found.steps)) == (60, 51, 1)
    assert found.data["number"] == 60


def test_signals_that_nobody_has_read_stay(system: System, tmp_path: Path) -> None:
    system.start_worker(TASK_MODULES="tests.features.durable.handlers")
    task = system.submit("rounds", json.dumps({"folder": str(tmp_path), "last": 2, "waits": True}))
    wait_until(lambda: system.records.state(task) is TaskState.SCHEDULED, "it waits")
    Signals(system.scripts).send(task, "go-2", "second", "me")
    Signals(system.scripts).send(task, "go-1", "first", "me")
    found = system.ended(task)
    assert found.result == {"number": 2, "calls": 1, "said": "second"}
    assert {each.name for each in found.steps} == {"work", "signal:go-2"}


def test_children_run_on_by_themselves(system: System) -> None:
    redis, record = system.redis, keys.rq_job("t")
    parents = [["p", "success"], ["c", "end", "pages"]]
    redis.hset(record, mapping={"state": "running", "token": "new", "parents": json.dumps(parents), "spawned": "1"})
    redis.hset(record, mapping={"step:pages": "{}", "steps": "1 2", "data": "old"})
    for each in ("p", "c"):
        redis.zadd(keys.children(each), {"t": 1})
    old = DurableSteps(system.scripts, "t", "old", most=1, most_bytes=1)
    with pytest.raises(LeaseEnded):
        old.restart("rounds", b"1", [])
    assert redis.hget(record, "data") == b"old"
    for _ in range(2):
        DurableSteps(system.scripts, "t", "new", most=1, most_bytes=1).restart("rounds", b"1", [])
        assert redis.hkeys(record) == [b"state", b"token", b"parents", b"steps", b"data"]
        assert redis.hget(record, "parents") == b'[["p","success"]]'
        assert [redis.zcard(keys.children(each)) for each in ("p", "c")] == [1, 0]
