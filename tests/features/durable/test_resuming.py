"""Loops with checkpoints, without Redis."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

import pytest

from firmq import LocalClient, TaskState, TaskSuspended, resumable
from firmq.shared.config.settings import Settings
from firmq.shared.features.durable.store import Steps as StepStore
from firmq.shared.stores.steps import StoredSteps
from firmq.worker.executors.recorder import Recorder
from firmq.worker.features.durable import resuming
from firmq.worker.features.durable.replay import Replay
from firmq.worker.handlers.registry import Handler, Registry, task
from tests.features.durable.handlers import rows_of

HOURS = 6
RESTARTS = 20


class Steps:
    """Steps in memory, of a worker that may drain."""

    def __init__(self, records: Mapping[str, bytes], drains: bool = False) -> None:
        self.records = dict(records)
        self.drains = drains

    def load(self) -> StoredSteps:
        return StoredSteps(0, self.records)

    def save(self, name: str, record: bytes) -> bytes:
        return self.records.setdefault(name, record)

    def checkpoint(self, name: str, record: bytes) -> bool:
        self.records[name] = record
        return self.drains


def _handler() -> Handler:
    registry = Registry()
    task("loop", registry=registry)(lambda: None)
    return registry.handlers["loop"]


HANDLER = _handler()


class SimulatedReplay(Replay):
    """An attempt whose time is set."""

    def __init__(self, steps: Steps, now: float = 0.0) -> None:
        super().__init__(
            cast("StepStore", steps),
            cast("Recorder", None),
            lambda value, where, what: json.dumps(value).encode(),
            timedelta(1),
            attempt=1,
            handler=HANDLER,
        )
        self.now = now

    def now_us(self) -> int:
        return int(self.now * 1_000_000)


@pytest.fixture
def attempt(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Makes an attempt the running one."""

    def begin(replay: Replay) -> Replay:
        monkeypatch.setattr(resuming, "replay_of_current_task", lambda: replay)
        return replay

    return begin


def test_a_loop_of_hours_loses_less_than_a_checkpoint_in_each_of_twenty_restarts(attempt: Any) -> None:
    """A row takes a second; a checkpoint is due every ten seconds. Each second restart is a kill, the others drain."""
    total, records, done, now = HOURS * 3600, dict[str, bytes](), list[int](), 0.0
    for restart in range(1, RESTARTS + 2):
        steps = Steps(records)
        replay, is_kill = attempt(SimulatedReplay(steps, now)), restart % 2
        ends_at, before = restart * total // RESTARTS + 5, len(done)
        try:
            for row in resumable(range(total), key=int, every=1000, seconds=10):
                done.append(row)
                replay.now += 1
                if replay.now >= ends_at and restart <= RESTARTS:
                    if is_kill:
                        break
                    steps.drains = True
        except TaskSuspended:
            assert not is_kill
            assert replay.now < ends_at + 10
        records, now = steps.records, replay.now
        assert not is_kill or restart > RESTARTS or len(done) - len(set(done)) < 10 * restart, before
    assert sorted(set(done)) == list(range(total))
    assert len(done) - total < 10 * RESTARTS / 2
    assert json.loads(records["checkpoint"])["value"] == {"key": total - 1, "items": total, "done": True}


def test_items_that_are_callable_are_items(attempt: Any) -> None:
    attempt(SimulatedReplay(Steps({})))
    assert list(resumable(TaskState, key=str)) == list(TaskState)


def test_a_complete_loop_is_not_repeated(attempt: Any) -> None:
    steps = Steps({})
    attempt(SimulatedReplay(steps))
    assert list(resumable([1, 2, 3], key=int)) == [1, 2, 3]
    attempt(SimulatedReplay(Steps(steps.records)))
    assert list(resumable([1, 2, 3], key=int)) == []


def test_a_function_gets_the_key_of_the_checkpoint(attempt: Any) -> None:
    steps, asked = Steps({}, drains=True), list[Any]()

    def behind(last: str | None) -> list[str]:
        asked.append(last)
        return [each for each in "abc" if last is None or each > last]

    for _ in "abc":
        attempt(SimulatedReplay(steps))
        with pytest.raises(TaskSuspended, match="continues behind checkpoint 'letters'"):
            list(resumable(behind, key=str, name="letters", every=1))
    attempt(SimulatedReplay(steps))
    assert list(resumable(behind, key=str, name="letters", every=1)) == []
    assert asked == [None, "a", "b", "c"]


def test_what_cannot_be_continued_is_an_error(attempt: Any) -> None:
    steps = Steps({}, drains=True)
    attempt(SimulatedReplay(steps))
    with pytest.raises(TaskSuspended):
        list(resumable([1, 2], key=int, every=1))
    attempt(SimulatedReplay(Steps(steps.records)))
    with pytest.raises(LookupError, match="no item has the key 1 of the checkpoint 'checkpoint'"):
        list(resumable([2, 3], key=int))
    attempt(SimulatedReplay(Steps({})))
    with pytest.raises(TypeError, match="must be a string or a whole number, got float"):
        list(resumable([1.5], key=float))  # type: ignore[arg-type]


@pytest.mark.parametrize("wrong", [{"every": 0}, {"seconds": -1}, {"name": "signal:x"}])
def test_what_cannot_be_used_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="resumable needs"):
        resumable([1], key=int, **wrong)


def test_outside_of_a_task_it_returns_all_items() -> None:
    async def numbers() -> Any:
        for each in (1, 2):
            yield each

    async def loop() -> list[int]:
        return [each async for each in resumable(numbers(), key=int)]

    assert list(resumable([1, 2], key=int)) == asyncio.run(loop()) == [1, 2]
    with pytest.raises(TypeError, match="async for"):
        list(resumable(numbers(), key=int))


@pytest.mark.parametrize("kind", ["rows", "rows-async", "rows-threads"])
def test_a_retry_continues_behind_the_checkpoint(tmp_path: Path, kind: str) -> None:
    local = LocalClient(["tests.features.durable.handlers"], settings=Settings())
    data = {"folder": str(tmp_path), "many": 10, "every": 4, "fails_at": 6}
    task = local.get(local.submit(kind, data).task_id)
    assert task.result == 10
    assert rows_of(tmp_path, 1) == [0, 1, 2, 3, 4, 5, 6]
    assert rows_of(tmp_path, 2) == [4, 5, 6, 7, 8, 9]
    assert [(each.name, each.kind) for each in task.steps][:1] == [("checkpoint", "checkpoint")]
