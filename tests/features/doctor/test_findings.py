"""What the doctor says of tasks that wait or were refused, and of jobs that are not run."""

from __future__ import annotations

import pytest

from firmq.shared.conditions.findings import Level
from firmq.shared.config.settings import Settings, load
from firmq.shared.features.doctor.system import check, check_waiting
from firmq.shared.stores import maintenance
from firmq.shared.stores.waiting import Reason, Waiting
from tests.integration.dashboard.conftest import bury
from tests.integration.worker.test_foreign_jobs import rq_enqueue
from tests.support.harness import System
from tests.support.store import Store


def test_jobs_of_others_are_named_with_what_to_do(store: Store, redis_url: str) -> None:
    rq_enqueue(store.redis, "low")
    maintenance.recover(store.scripts, "low", 0, 200)
    settings = load({"REDIS_URL": redis_url})
    [found] = [each for each in check(store.redis, settings) if each.check == "foreign jobs"]
    assert "1 in low" in found.seen
    assert "firmq queues move-foreign NAME --to QUEUE" in found.advice


@pytest.mark.parametrize(
    ("reason", "level"), [(Reason.QUEUE_PAUSED, Level.WARNING), (Reason.NO_FREE_EXECUTOR, Level.OK)]
)
def test_it_warns_of_what_only_people_lift(reason: Reason, level: Level) -> None:
    found = check_waiting([Waiting(reason=reason, name="low", count=7)])
    assert (found.level, "of 7 pending tasks" in found.seen) == (level, True)
    assert ("queues resume low" in found.advice) == (level is Level.WARNING)
    assert check_waiting([]).level is Level.OK


def test_dead_letters_whose_data_no_version_takes_are_named(system: System) -> None:
    bury(system, ["version 2: not for it"] * 3, task_type="ship", error="InvalidData")
    [refused] = [each for each in check(system.redis, Settings()) if each.check == "refused data"]
    assert (refused.level, "3 of ship (version 2: not for it)" in refused.seen) == (Level.WARNING, True)
