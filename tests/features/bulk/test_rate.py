"""The rate of a bulk action on a running system, and what it leaves for others."""

from __future__ import annotations

import os
import time

import pytest

from firmq.shared.domain.task import TaskState
from firmq.shared.features.bulk.store import BulkAction, BulkActions, Plan, Selection, Verb
from firmq.shared.stores.tasks import Filter
from tests.support.figures import JUDGED, judge
from tests.support.harness import System, wait_until

TASKS = int(os.environ.get("BULK_TASKS", "10000" if JUDGED else "2500"))
RATE = 1000


@pytest.mark.timeout(900)
def test_many_are_cancelled_paused_and_restored_at_the_rate_while_submissions_stay_quick(system: System) -> None:
    for _ in range(TASKS // 2500):
        system.submit_many([("noop", "null")] * 2500)
    system.start_housekeeper()
    bulks = BulkActions(system.scripts, system.dead_letters)
    plan = Plan(verb=Verb.CANCEL, selection=Selection(wanted=Filter(state=TaskState.PENDING, type="noop")))
    cancelling = bulks.begin(plan, what="all", by="a test", rate=RATE)
    first_half = follow(system, bulks, cancelling, TASKS // 2)
    assert bulks.change(cancelling, "paused")
    time.sleep(0.5)  # a step that had begun may end
    paused_at = progress(bulks, cancelling).done
    time.sleep(2)
    assert progress(bulks, cancelling).done == paused_at < TASKS
    assert bulks.change(cancelling, "running")
    second_half = follow(system, bulks, cancelling, TASKS)
    assert system.records.counts()[TaskState.CANCELLED] == TASKS
    restoring = bulks.undo(progress(bulks, cancelling), by="a test")
    undone = follow(system, bulks, restoring, TASKS)
    assert system.records.counts()[TaskState.CANCELLED] == 0
    for what, (rate, slow) in {"cancelled": first_half, "resumed": second_half, "restored": undone}.items():
        judge(f"{RATE} of {TASKS} tasks {what}", RATE / rate, 1 / 0.9)
        judge("p99 of a submission meanwhile", slow, 0.05)


def follow(system: System, bulks: BulkActions, action: str, until: int) -> tuple[float, float]:
    """Submits until an action has changed so many tasks; returns tasks a second and p99 of a submission, in seconds."""
    before = progress(bulks, action).done
    wait_until(lambda: progress(bulks, action).done > before, "it has begun", 60)
    first, began, waits = progress(bulks, action).done, time.monotonic(), list[float]()
    while (now := progress(bulks, action)).open and now.done < until:
        submitted = time.perf_counter()
        system.submit("echo")
        waits.append(time.perf_counter() - submitted)
        time.sleep(0.01)
    assert now.done >= until
    took = time.monotonic() - began
    assert now.done - first <= 1.1 * RATE * (took + 1), "a housekeeper that was late makes up for at most a second"
    return (now.done - first) / took, sorted(waits)[int(len(waits) * 0.99)]


def progress(bulks: BulkActions, action: str) -> BulkAction:
    found = bulks.get(action)
    assert found
    return found
