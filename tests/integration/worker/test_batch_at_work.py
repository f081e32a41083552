"""Batches on real workers: the limit holds at every moment, the end is noticed, and what follows knows the counts."""

from __future__ import annotations

import json
from pathlib import Path

from firmq.shared.domain.task import BatchPlace, NewTask, TaskState, new_task_id
from firmq.shared.stores.batches import Batches, BatchTerms
from tests.support.harness import System

TASKS = 300
AT_ONCE = 3
S = TaskState


def test_four_workers_together_run_no_more_of_a_batch_than_it_says_and_something_follows(
    system: System, tmp_path: Path
) -> None:
    ledger = tmp_path / "ledger"
    ledger.touch()
    for _ in range(4):
        system.start_worker(WORKER_EXECUTORS="2")
    system.start_housekeeper()
    batches, batch_id = Batches(system.scripts), new_task_id()
    then = NewTask(id=new_task_id(), type="gather", data="null", queue="high", after_batch=batch_id)
    batches.open(batch_id, BatchTerms(name="by threes", max_running=AT_ONCE, then=then.id))
    system.queues.submit([then])
    system.queues.submit([step(batch_id, at, ledger) for at in range(TASKS)])
    batches.close(batch_id)
    assert system.ended(then.id, 120).result == {"batch": "by threes", "completed": TASKS - 30, "failed": 30}
    assert most_at_once(ledger) == AT_ONCE
    counts = batches.get(batch_id).counts
    assert {state: count for state, count in counts.items() if count} == {S.COMPLETED: TASKS - 30, S.FAILED: 30}


def step(batch_id: str, at: int, ledger: Path) -> NewTask:
    """Every tenth fails permanently, every seventh of the others once."""
    kind = "fail" if at % 10 == 0 else "flaky" if at % 7 == 0 else "ok"
    return NewTask(
        id=new_task_id(),
        type="step",
        data=json.dumps({"file": str(ledger), "kind": kind, "seconds": 0.02}),
        queue="normal",
        retry={"max_retries": 1 if kind == "flaky" else 0},
        batch=BatchPlace(batch_id=batch_id, index=at),
    )


def most_at_once(ledger: Path) -> int:
    """The most attempts that were begun and not ended at one moment, by the lines that the handlers wrote."""
    open_now = most = 0
    for line in ledger.read_text().splitlines():
        open_now += 1 if line.endswith(" start") else -1
        most = max(most, open_now)
    return most
