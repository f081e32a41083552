"""Steps that Redis confirmed and then lost: it was killed before they were on its disk, or a replica took over."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from redis import Redis

from firmq.shared.domain.step import StepKind, encode_step
from firmq.shared.domain.task import NewTask, TaskState, new_task_id
from firmq.shared.errors import StepsLost
from firmq.shared.features.durable.signals import Signals
from firmq.shared.features.durable.store import DurableSteps
from firmq.shared.local.embedded_redis import EmbeddedRedis
from firmq.shared.redis.client import connect
from firmq.shared.stores.dead_letters import requeue
from firmq.shared.stores.queues import submit_arguments
from tests.features.durable.handlers import calls
from tests.labs.faults.slow_disk import HeldFsync
from tests.support.harness import System, free_port, running_system, wait_until
from tests.support.keys import keys
from tests.support.store import Store


class _Children:
    def prepare(self, *_: object) -> list[tuple[str, ...]]:
        return []

    def bounds(self) -> str:
        return "0"


def record(kind: StepKind = StepKind.RESULT) -> bytes:
    return encode_step(kind, b"1", attempt=1, started_us=1, ended_us=2)


def child() -> tuple[str, ...]:
    return tuple(map(str, submit_arguments(NewTask(id=new_task_id(), type="noop", data="null", queue="normal"))))


WRITES: dict[str, Callable[[DurableSteps], object]] = {
    "step": lambda steps: steps.save("b", record()),
    "sleep": lambda steps: steps.save("nap", record(StepKind.SLEEP)),
    "wait": lambda steps: steps.save("signal:go", record(StepKind.WAIT)),
    "timeout": lambda steps: steps.save("signal:go", record(StepKind.TIMEOUT)),
    "checkpoint": lambda steps: steps.checkpoint("checkpoint", record(StepKind.CHECKPOINT)),
    "children": lambda steps: steps.start_children("pages", record(), "pages", [child()]),
    "output": lambda steps: steps.emit(1, 1, b"1"),
    "restart": lambda steps: steps.restart("noop", b"1", []),
}


@pytest.fixture
def task(store: Store) -> str:
    """A task that runs."""
    [task_id] = store.submit()
    store.claim()
    return task_id


def opened(store: Store, task: str) -> DurableSteps:
    steps = DurableSteps(store.scripts, task, "t1", most=9, most_bytes=9999, most_output=9999, children=_Children())
    steps.load()
    return steps


def rolled_back(store: Store, task: str, write: Callable[[], object]) -> None:
    """Writes, and sets the record back to what it was: a write that was answered is lost with the ones after it."""
    before = store.redis.dump(keys.rq_job(task))
    write()
    store.redis.restore(keys.rq_job(task), 0, before, replace=True)  # type: ignore[arg-type]


@pytest.mark.parametrize("lost", [each for each in WRITES if each not in ("restart", "timeout")])
@pytest.mark.parametrize("refused", WRITES)
def test_nothing_is_stored_behind_what_redis_has_lost(store: Store, task: str, lost: str, refused: str) -> None:
    steps = opened(store, task)
    rolled_back(store, task, lambda: WRITES[lost](steps))
    before = store.snapshot()
    with pytest.raises(StepsLost):
        WRITES[refused](steps)
    assert store.snapshot() == before
    WRITES[refused](opened(store, task))


@pytest.mark.parametrize("refused", [each for each in WRITES if each != "restart"])
def test_a_field_that_is_gone_is_a_lost_step(store: Store, task: str, refused: str) -> None:
    steps = opened(store, task)
    steps.save("a", record())
    store.redis.hdel(keys.rq_job(task), "step:a")
    with pytest.raises(StepsLost):
        WRITES[refused](steps)


def test_a_signal_that_an_attempt_has_read_is_missed(store: Store, task: str) -> None:
    steps = list[DurableSteps]()

    def read() -> None:
        Signals(store.scripts).send(task, "go", 1, "me")
        steps.append(opened(store, task))

    rolled_back(store, task, read)
    with pytest.raises(StepsLost):
        steps[0].save("b", record())


def test_a_signal_that_comes_after_a_loss_does_not_hide_it(store: Store, task: str) -> None:
    steps = opened(store, task)
    rolled_back(store, task, lambda: steps.save("a", record()))
    Signals(store.scripts).send(task, "go", 1, "me")
    with pytest.raises(StepsLost):
        steps.save("b", record())


def test_a_write_that_is_sent_twice_is_not_a_loss(store: Store, task: str) -> None:
    for name, write in WRITES.items():
        steps, again = opened(store, task), opened(store, task)
        again._known = steps._known  # as a connection that breaks after the script has run
        write(steps)
        write(again)
        assert again._known >= steps._known, name


@pytest.mark.parametrize("awaits", ["sleep nap", "signal go", "children pages"])
def test_an_attempt_whose_wait_is_lost_runs_again_at_once(store: Store, task: str, awaits: str) -> None:
    store.report(task, "suspended", due_us=store.clock.now_us + 10**9, awaits=awaits)
    assert store.records.state(task) is TaskState.PENDING


@pytest.mark.parametrize("kind", ["walk", "walk-threads", "walk-async"])
def test_an_attempt_whose_steps_are_lost_ends_as_interrupted_and_replays(
    system: System, tmp_path: Path, kind: str
) -> None:
    (tmp_path / "b.hold").touch()
    system.start_worker(TASK_MODULES="tests.features.durable.handlers")
    task = system.submit(kind, json.dumps({"folder": str(tmp_path), "names": ["a", "b", "c"]}))
    wait_until((tmp_path / "b.done").exists, "two steps are stored")
    system.redis.hdel(keys.rq_job(task), "step:b")
    (tmp_path / "b.hold").unlink()
    found = system.ended(task)
    assert found.summary.state is TaskState.COMPLETED
    assert [each.outcome for each in found.attempts] == ["interrupted", "completed"]
    assert "Redis has lost a step" in str(found.attempts[0].error)
    assert [calls(tmp_path, each) for each in "abc"] == [1, 2, 2]  # the result of the last was refused
    assert found.result == [each.value for each in found.steps]


@pytest.mark.parametrize("kind", ["walk", "walk-async"])
def test_a_lost_step_before_others_is_no_change_of_the_code(system: System, tmp_path: Path, kind: str) -> None:
    system.start_worker(TASK_MODULES="tests.features.durable.handlers")
    data = json.dumps({"folder": str(tmp_path), "names": ["a", "b", "c"], "fails": 1})
    task = system.submit(kind, data, retry={"max_retries": 0})
    assert system.ended(task).summary.state is TaskState.FAILED
    system.redis.hdel(keys.rq_job(task), "step:a")
    requeue(system.scripts, [task])
    assert system.ended(task).summary.state is TaskState.COMPLETED
    assert [calls(tmp_path, each) for each in "abc"] == [2, 1, 1]


@pytest.mark.skipif(sys.platform != "linux", reason="an fsync is held by a means of Linux")
def test_a_step_returns_once_it_is_in_the_file_of_redis(tmp_path: Path) -> None:
    with (
        EmbeddedRedis(data_dir=tmp_path / "data", port=free_port()) as server,
        connect(server.url, timeout=5) as client,
        running_system(client, server.url, tmp_path) as system,
    ):
        system.start_worker(TASK_MODULES="tests.features.durable.handlers")
        (tmp_path / "a.hold").touch()
        task = system.submit("walk", json.dumps({"folder": str(tmp_path), "names": ["a", "b", "c"]}))
        wait_until((tmp_path / "a.done").exists, "a step is stored")
        held = HeldFsync(server.pid or 0)
        wait_until(lambda: _is_postponed(client), "Redis holds back what it has answered")
        (tmp_path / "a.hold").unlink()
        wait_until(lambda: calls(tmp_path, "b"), "the next step has run")
        held.kill_server()
        server.start()
        found = system.ended(task)
        assert [calls(tmp_path, each) for each in "abc"] == [1, 1, 1]
        assert found.result == [each.value for each in found.steps]


def _is_postponed(client: Redis) -> bool:
    client.set("something", "x")
    info = client.info("persistence")
    return bool(info["aof_pending_bio_fsync"] and info["aof_buffer_length"])
