"""The last runs of a schedule: how each ended, how many failed in a row, and that they stay bounded."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from firmq.shared.domain.lock import FencingToken
from firmq.shared.domain.schedule import Schedule
from firmq.shared.domain.task import new_task_id
from firmq.shared.stores.dead_letters import DeadLetters
from firmq.shared.stores.queues import Queues
from firmq.shared.stores.schedules import Fired, ScheduleStore
from firmq.shared.stores.tasks import Records
from tests.integration.housekeeping.conftest import Machine
from tests.support.attempt_ends import claiming, ended, report
from tests.support.keys import keys


class Site:
    """A schedule every minute, and what becomes of its runs."""

    def __init__(self, machine: Machine, **fields: Any) -> None:
        self.machine = machine
        self.store = ScheduleStore(machine.scripts)
        self.store.put(Schedule(**{"name": "tick", "type": "noop", "queue": "normal", "interval": 60, **fields}))
        self.records = Records(machine.scripts, ["normal"])
        self.dead_letters = DeadLetters(machine.scripts, self.records, kept=timedelta(0))

    def fire(self) -> str:
        self.machine.advance(60)
        self.store.fire_due(FencingToken(), timedelta(seconds=60), Fired())
        return str(self.store.get("tick").last_task)

    def end(self, outcome: str) -> None:
        """Ends all pending tasks."""
        token = new_task_id()
        tasks = self.machine.scripts.call("claim", *claiming("w", token, 60_000_000, 100, 1 << 20, "normal", 100))[3]
        for task in tasks:
            report(self.machine.scripts, ended(task[0], token, outcome, '{"worker": "w"}'))

    def run(self, outcome: str) -> str:
        task = self.fire()
        self.end(outcome)
        return task

    def follow(self) -> None:
        self.machine.advance(61)
        self.store.follow(FencingToken())

    def states(self) -> list[str]:
        return [each.state for each in self.store.runs(["tick"])[0]]

    def failing(self) -> float | None:
        return self.machine.scripts.redis.zscore(keys.SCHEDULES_FAILING, "tick")


def test_each_run_has_its_outcome_and_failures_in_a_row_are_counted(machine: Machine) -> None:
    site = Site(machine)
    first = site.run("completed")
    for _ in range(2):
        site.run("failed")
    site.fire()
    site.follow()
    assert site.states() == ["completed", "failed", "failed", "pending"]
    assert site.store.runs(["tick"])[0][0].task_id == first
    assert site.failing() == 2
    site.end("completed")
    site.follow()
    assert (site.states()[-1], site.failing()) == ("completed", None)


def test_a_retried_run_is_one_run(machine: Machine) -> None:
    site = Site(machine)
    dead = site.run("failed")
    site.follow()
    assert site.failing() == 1
    site.dead_letters.requeue(dead)
    site.follow()
    assert (site.states(), site.failing()) == (["pending"], None)
    site.end("completed")
    site.follow()
    assert (site.states(), site.failing()) == (["completed"], None)
    assert machine.scripts.redis.zcard(keys.SCHEDULES_FOLLOWED) == 0


def test_a_deleted_run_keeps_its_outcome_where_that_was_seen(machine: Machine) -> None:
    site = Site(machine)
    dead = site.run("failed")
    site.follow()
    site.dead_letters.purge(dead)
    unseen = site.run("failed")
    site.dead_letters.purge(unseen)
    site.follow()
    assert site.states() == ["failed", "removed"]


def test_cancelled_runs_neither_count_as_failed_nor_end_a_row(machine: Machine) -> None:
    site = Site(machine)
    site.run("failed")
    Queues(machine.scripts, {"normal": 1}).cancel(site.fire(), "test")
    site.run("failed")
    site.follow()
    assert (site.states(), site.failing()) == (["failed", "cancelled", "failed"], 2)


def test_thirty_runs_are_kept_and_removed_with_their_schedule(machine: Machine) -> None:
    site = Site(machine)
    ids = [site.run("failed") for _ in range(33)]
    site.follow()
    assert [each.task_id for each in site.store.runs(["tick"])[0]] == ids[3:]
    assert site.failing() == 30
    site.store.delete("tick")
    assert site.store.runs(["tick"]) == [[]]
    assert not machine.scripts.redis.exists(keys.schedule_runs("tick"), keys.SCHEDULES_FOLLOWED, keys.SCHEDULES_FAILING)


def test_a_corrupt_run_is_dropped(machine: Machine) -> None:
    site = Site(machine)
    machine.scripts.redis.hset(keys.schedule_runs("tick"), "broken", "soon")
    site.run("completed")
    site.follow()
    assert site.states() == ["completed"]
    assert machine.scripts.redis.hlen(keys.schedule_runs("tick")) == 1
