"""A housekeeper is killed between two steps of a bulk action."""

from __future__ import annotations

import os
import signal

import pytest

from firmq.shared.features.bulk.store import BulkActions, Plan, Selection, Verb
from tests.labs.faults.test_failpoints import Place, place, reached
from tests.support.harness import wait_until

__all__ = ["place"]


@pytest.mark.parametrize("point", ["bulk.step"])
def test_a_bulk_action_whose_housekeeper_is_killed_processes_each_task_once(place: Place, point: str) -> None:
    trap = place.trap(point)
    ids = place.submit(5, "give-up")
    for each in ids:
        place.system.ended(each)
    os.kill(place.housekeeper.pid, signal.SIGSTOP)
    try:
        victim = place.system.start_housekeeper(**trap)
        actions = BulkActions(place.system.scripts, place.system.dead_letters)
        plan = Plan(verb=Verb.RETRY, selection=Selection(ids=tuple(ids)))
        begun = actions.begin(plan, what="a test", by="test", rate=2)
        wait_until(lambda: reached(trap), f"the point is reached\n{place.system.logs()[-2000:]}", 60)
    finally:
        os.kill(place.housekeeper.pid, signal.SIGCONT)
    wait_until(lambda: (found := actions.get(begun)) and not found.open, "another housekeeper continues", 90)
    wait_until(lambda: all(len(place.system.ended(each).attempts) == 2 for each in ids), "all were sent back", 60)
    found = actions.get(begun)
    assert found
    assert (found.done, found.passed) == (5, 0)
    victim.kill()
    victim.wait(60)
