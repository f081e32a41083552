"""Tasks that wait for signals, at real workers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from firmq.shared.domain.task import TaskState
from firmq.shared.errors import IllegalTransition
from firmq.shared.features.durable.signals import Signals, check_signal
from firmq.shared.stores.dead_letters import requeue
from firmq.shared.submission.refusals import Refusal
from tests.features.durable.handlers import calls
from tests.support.harness import System, wait_until
from tests.support.keys import keys

MODULES = {"TASK_MODULES": "tests.features.durable.handlers,tests.support.handlers"}
KINDS = pytest.mark.parametrize("kind", ["approve", "approve-threads", "approve-async"])


def asked(system: System, folder: Path, kind: str, within: float | None = None) -> str:
    task = system.submit(kind, json.dumps({"folder": str(folder), "within": within}))
    wait_until(lambda: system.records.state(task) is TaskState.SCHEDULED, f"task {task} waits")
    return task


@KINDS
def test_a_task_continues_with_the_data_of_its_signal(system: System, tmp_path: Path, kind: str) -> None:
    worker = system.start_worker(**MODULES, EXECUTOR_SLOTS="1")
    task = asked(system, tmp_path, kind)
    assert system.ended(system.submit("noop")).summary.state is TaskState.COMPLETED
    worker.kill()
    worker.wait()
    Signals(system.scripts).send(task, "approval", {"by": "Ann"}, "Ann")
    system.start_worker(**MODULES)
    found = system.ended(task)
    assert found.result == [{"by": "Ann"}, 2, 0]
    assert (calls(tmp_path, "ask"), calls(tmp_path, "tell")) == (1, 1)
    assert [each.name for each in found.steps] == ["ask", "signal:approval", "tell"]


@KINDS
def test_a_signal_that_came_before_is_returned_at_once(system: System, tmp_path: Path, kind: str) -> None:
    task = system.submit(kind, json.dumps({"folder": str(tmp_path)}))
    Signals(system.scripts).send(task, "approval", 7, "Ann")
    system.start_worker(**MODULES)
    assert system.ended(task).result == [7, 1, 0]


@KINDS
def test_a_wait_times_out(system: System, tmp_path: Path, kind: str) -> None:
    system.start_worker(**MODULES)
    task = asked(system, tmp_path, kind, 0.5)
    system.start_housekeeper()  # without one it waits on, however late it was seen waiting
    assert system.ended(task).result == ["too late", 2, 0]


def test_a_wait_that_was_run_now_continues_to_wait(system: System, tmp_path: Path) -> None:
    system.start_worker(**MODULES)
    task = asked(system, tmp_path, "approve")
    system.queues.run_now(task)
    wait_until(lambda: len(system.records.get(task).attempts) == 2, "it ran again")
    wait_until(lambda: system.records.state(task) is TaskState.SCHEDULED, "it waits again")
    Signals(system.scripts).send(task, "approval", 7, "Ann")
    assert system.ended(task).result == [7, 3, 0]


TYPED = pytest.mark.parametrize("kind", ["approve-typed", "approve-typed-async"])


def typed(system: System, folder: Path, kind: str, **data: object) -> str:
    task = system.submit(kind, json.dumps({"folder": str(folder), **data}))
    wait_until(lambda: system.records.state(task) is TaskState.SCHEDULED, f"task {task} waits")
    return task


def send(system: System, task: str, data: object, replaces: str = "") -> bool:
    return Signals(system.scripts).send(task, "approval", data, "Ann", replaces, check_signal)


@TYPED
def test_data_that_does_not_fit_the_type_is_refused_and_not_stored(system: System, tmp_path: Path, kind: str) -> None:
    system.start_worker(**MODULES)
    task = typed(system, tmp_path, kind)
    stored = system.redis.dump(keys.rq_job(task))
    for wrong in (None, {}, {"approved": "perhaps"}, {"approved": True, "until": 7}, [True]):
        with pytest.raises(Refusal) as refused:
            send(system, task, wrong)
        assert refused.value.kind.status == 422
        assert refused.value.members["errors"][0]["pointer"].startswith("#/data")
    with pytest.raises(Refusal) as refused:
        send(system, task, None)
    assert refused.value.detail.endswith("send an object with approved, until")
    assert system.redis.dump(keys.rq_job(task)) == stored
    send(system, task, {"approved": True, "until": "2030-01-31"})
    assert system.ended(task).result == [True, "2030-01-31", 2]


@TYPED
def test_data_that_came_before_and_does_not_fit_leaves_the_task_waiting(
    system: System, tmp_path: Path, kind: str
) -> None:
    task = system.submit(kind, json.dumps({"folder": str(tmp_path)}))
    send(system, task, {"approved": "perhaps"})
    system.start_worker(**MODULES)
    wait_until(lambda: system.records.state(task) is TaskState.SCHEDULED, "it waits")
    found = system.records.get(task)
    assert "the last one was not accepted: approved: Input should be a valid boolean" in str(found.attempts[-1].error)
    send(system, task, {"approved": True, "until": "1999-12-31"})
    wait_until(lambda: "until: Value error, is over" in str(system.records.get(task).attempts[-1].error), "waits again")
    wait_until(lambda: system.records.state(task) is TaskState.SCHEDULED, "it waits again")
    with pytest.raises(Refusal):
        send(system, task, None)
    send(system, task, {"approved": True})
    assert system.ended(task).result == [True, None, 3]
    assert calls(tmp_path, "ask") == 1


@TYPED
def test_the_signal_of_a_dead_letter_is_corrected(system: System, tmp_path: Path, kind: str) -> None:
    system.start_worker(**MODULES)
    task = typed(system, tmp_path, kind, fails=True)
    send(system, task, {"approved": False})
    assert system.ended(task).summary.state is TaskState.FAILED
    with pytest.raises(IllegalTransition, match="with other data: replace it"):
        send(system, task, {"approved": True})
    with pytest.raises(Refusal):
        send(system, task, {"approved": "perhaps"}, "operate")
    assert send(system, task, {"approved": True}, "operate") is True
    requeue(system.scripts, [task])
    assert system.ended(task).result == [True, None, 3]
    assert calls(tmp_path, "ask") == 1
