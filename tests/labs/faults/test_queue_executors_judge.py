"""The judge of QUEUE_EXECUTORS counts for each process of the worker that has such limits, and only their queues."""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace
from typing import cast

from tests.labs.faults.case import SECOND, Case
from tests.labs.faults.judges import no_worker_exceeds_its_queue_executors
from tests.labs.faults.ledger import Execution
from tests.labs.faults.site import QUEUE_EXECUTORS, Site

FIRST, SECOND_START, OTHER = 101, 102, 201
"""The worker with limits, the one that took its place, and the worker without."""


def execution(task_id: str, start: float, end: float, worker: int = FIRST) -> Execution:
    return Execution(task_id, 1, 1, worker, int(start * SECOND), int(end * SECOND), "complete")


def complaints(*executions: Execution) -> list[str]:
    """Of tasks whose ids begin with the names of their queues."""
    pids = {"worker-1": [OTHER], "worker-2": [FIRST, SECOND_START]}
    parts = {name: SimpleNamespace(pids=each) for name, each in pids.items()}
    site = SimpleNamespace(queue_executors=partial(Site.queue_executors, cast("Site", SimpleNamespace(parts=parts))))
    ledger = SimpleNamespace(executions=lambda: sorted(executions, key=lambda each: each.start_ns))
    case = SimpleNamespace(
        run=SimpleNamespace(site=site, ledger=ledger),
        tasks={each.task_id: {"queue": each.task_id.split("-")[0]} for each in executions},
    )
    return list(no_worker_exceeds_its_queue_executors(cast("Case", case)))


def test_one_queue_of_one_worker_has_a_limit_here() -> None:
    assert QUEUE_EXECUTORS == {"worker-2": {"high": 1}}


def test_tasks_of_the_queue_that_run_together_at_its_worker_are_found() -> None:
    found = complaints(execution("high-1", 0, 2), execution("high-2", 2.1, 4), execution("high-3", 3, 5))
    assert found == [f"worker process {FIRST} ran tasks of high at 2 executors: high-2, high-3"]


def test_one_after_the_other_beside_other_queues_and_other_workers_is_as_promised() -> None:
    one_by_one = [execution("high-1", 0, 2), execution("high-2", 2.1, 4)]
    assert complaints(*one_by_one, execution("normal-1", 0, 4), execution("high-3", 0, 4, OTHER)) == []


def test_the_worker_without_limits_may_run_as_many_as_it_has_executors() -> None:
    assert complaints(execution("high-1", 0, 4, OTHER), execution("high-2", 0, 4, OTHER)) == []


def test_what_a_killed_worker_left_running_takes_no_slot_of_its_successor() -> None:
    left = execution("high-1", 0, 3)
    assert complaints(left, execution("high-2", 1, 4, SECOND_START)) == []
    assert len(complaints(left, execution("high-2", 1, 4, SECOND_START), execution("high-3", 2, 4, SECOND_START))) == 1


def test_an_execution_whose_worker_had_ended_before_it_began_counts_for_no_worker() -> None:
    assert complaints(execution("high-1", 0, 3, worker=1), execution("high-2", 0, 3, worker=1)) == []
