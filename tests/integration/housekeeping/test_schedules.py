"""Schedules in Redis: each due time becomes one task, whoever else tries to make it."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest
from redis import Redis

from firmq.shared.config.settings import Settings
from firmq.shared.domain.clock import instant
from firmq.shared.domain.lock import FencingToken, Lock
from firmq.shared.domain.schedule import Missed, Overlap, Schedule, task_now
from firmq.shared.domain.task import WEBHOOK_TYPE, TaskState, Webhook, new_task_id
from firmq.shared.errors import ScheduleNotFound, StepRefused
from firmq.shared.observability.tracing import Tracing
from firmq.shared.stores.locks import NoLocks
from firmq.shared.stores.queues import Queues
from firmq.shared.stores.schedules import Fired, ScheduleStore
from firmq.shared.stores.tasks import Filter, Records
from firmq.worker.housekeeping.jobs.schedules import Schedules
from firmq.worker.housekeeping.lateness import Lateness
from firmq.worker.housekeeping.lock_metrics import LockMetrics
from firmq.worker.housekeeping.locking import RoundByRound
from firmq.worker.housekeeping.runner import Housekeeper
from tests.integration.housekeeping.conftest import Machine
from tests.support.attempt_ends import claiming
from tests.support.keys import keys

GRACE = timedelta(seconds=60)


def schedule(name: str = "tick", **fields: Any) -> Schedule:
    given = {"interval": 60} if "cron" not in fields and "interval" not in fields else {}
    return Schedule(**{"name": name, "type": "noop", "queue": "normal", **given, **fields})


def fire(
    machine: Machine, schedule_store: ScheduleStore | None = None, fencing_token: FencingToken | None = None
) -> Fired:
    fired = Fired()
    (schedule_store or ScheduleStore(machine.scripts)).fire_due(fencing_token or FencingToken(), GRACE, fired)
    return fired


def tasks(machine: Machine) -> dict[str, TaskState]:
    page = Records(machine.scripts, ["normal"]).page(Filter(), limit=1000)
    return {item.id: item.state for item in page.items}


def run(machine: Machine) -> None:
    """Takes what is pending, as a worker would."""
    machine.scripts.call("claim", *claiming("w1", new_task_id(), 9_000_000, 100, 1 << 20, "normal", 100))


def test_a_due_time_becomes_a_task_and_the_next_one_waits(machine: Machine) -> None:
    schedule_store = ScheduleStore(machine.scripts)
    assert schedule_store.put(schedule()) == "created"
    assert fire(machine).tasks == 0
    machine.advance(60)
    assert fire(machine).tasks == 1
    assert fire(machine).tasks == 0
    assert list(tasks(machine)) == ["tick-20270115T080100Z"]
    stored = schedule_store.get("tick")
    assert stored.due == instant(machine.clock.now_us) + timedelta(seconds=60)
    assert (stored.fired, stored.last_task) == (1, "tick-20270115T080100Z")


def test_the_task_is_one_like_any_other(machine: Machine) -> None:
    ScheduleStore(machine.scripts).put(
        schedule(data='{"n": 1}', tags=("report",), timeout=5.0, expires_in=30.0, retry={"max_retries": 1})
    )
    machine.advance(60)
    fire(machine)
    task = Records(machine.scripts, ["normal"]).get("tick-20270115T080100Z")
    assert task.data == {"n": 1}
    assert task.summary.tags == ("report", "schedule:tick")
    assert task.timeout == timedelta(seconds=5)
    assert task.expires_at == instant(machine.clock.now_us) + timedelta(seconds=30)
    assert task.meta["schedule"] == "tick"
    assert machine.redis.lrange(keys.rq_queue("normal"), 0, -1) == [b"tick-20270115T080100Z"]


def test_its_task_has_the_limit_and_webhook(machine: Machine) -> None:
    hook = Webhook(url="https://shop.example/hooks", events=("completed",))
    ScheduleStore(machine.scripts).put(schedule(limit_key="partner", fair_key="shop-7", webhook=hook))
    machine.advance(60)
    fire(machine)
    task = Records(machine.scripts, ["normal"]).get("tick-20270115T080100Z")
    assert (task.limit_key, task.fair_key, task.webhook) == ("partner", "shop-7", hook)


def test_eight_at_once_make_one_task_of_each_due_time(redis_client: Redis) -> None:
    machine = Machine(redis_client)
    schedule_store = ScheduleStore(machine.scripts)
    for number in range(10):
        schedule_store.put(schedule(f"s{number}", interval=1, missed=Missed.ALL))
    made = 0
    with ThreadPoolExecutor(8) as pool:
        for _ in range(6):
            machine.advance(5)
            made += sum(each.tasks for each in pool.map(lambda _: fire(machine), range(8)))
    assert made == 300
    assert len(tasks(machine)) == 300
    assert machine.redis.llen(keys.rq_queue("normal")) == 300


def test_a_step_sent_twice_after_a_lost_answer_changes_nothing(machine: Machine) -> None:
    schedule_store = ScheduleStore(machine.scripts)
    schedule_store.put(schedule())
    machine.advance(60)
    sent: list[tuple[Any, ...]] = []
    call = machine.scripts.call

    def twice(name: str, *arguments: Any) -> Any:
        if name != "schedule_fire":
            return call(name, *arguments)
        sent.append(arguments)
        call(name, *arguments)
        return call(name, *arguments)

    machine.scripts.call = twice  # type: ignore[method-assign]
    fire(machine)
    assert len(sent) == 1
    assert len(tasks(machine)) == 1
    assert schedule_store.get("tick").fired == 1


def test_a_late_holder_of_the_lock_makes_no_task(machine: Machine) -> None:
    ScheduleStore(machine.scripts).put(schedule())
    held = machine.instance("hk-1").acquire(Lock(name="schedules", at_most=timedelta(seconds=30)))
    assert held is not None
    machine.advance(60)
    with pytest.raises(StepRefused):
        fire(machine, fencing_token=held.fencing_token)
    assert tasks(machine) == {}


@pytest.mark.parametrize(("missed", "made", "passed"), [(Missed.SKIP, 1, 10), (Missed.ONCE, 1, 10), (Missed.ALL, 6, 5)])
def test_of_eleven_due_times_ten_are_missed(machine: Machine, missed: Missed, made: int, passed: int) -> None:
    schedule_store = ScheduleStore(machine.scripts)
    schedule_store.put(schedule(missed=missed, missed_limit=5))
    machine.advance(661)
    assert fire(machine).tasks == made
    stored = schedule_store.get("tick")
    assert (stored.fired, stored.missed) == (made, passed)
    assert stored.due == instant(machine.clock.now_us) + timedelta(seconds=59)


@pytest.mark.parametrize(
    ("overlap", "states", "skipped"),
    [
        (Overlap.ALLOW, [TaskState.PENDING, TaskState.PENDING], 0),
        (Overlap.SKIP, [TaskState.PENDING], 1),
        (Overlap.CANCEL, [TaskState.PENDING, TaskState.CANCELLED], 0),
    ],
)
def test_when_the_last_task_still_waits(
    machine: Machine, overlap: Overlap, states: list[TaskState], skipped: int
) -> None:
    schedule_store = ScheduleStore(machine.scripts)
    schedule_store.put(schedule(overlap=overlap))
    for _ in range(2):
        machine.advance(60)
        fire(machine)
    assert list(tasks(machine).values()) == states
    assert schedule_store.get("tick").overlaps == skipped


def test_cancelling_the_older_asks_the_worker_that_runs_it(machine: Machine) -> None:
    ScheduleStore(machine.scripts).put(schedule(overlap=Overlap.CANCEL))
    machine.advance(60)
    fire(machine)
    run(machine)
    machine.advance(60)
    fire(machine)
    assert machine.redis.lrange(keys.control("w1"), 0, -1) == [b"cancel tick-20270115T080100Z"]


def test_a_full_queue_makes_the_due_time_wait(machine: Machine) -> None:
    schedule_store = ScheduleStore(machine.scripts, "1")
    schedule_store.put(schedule())
    machine.advance(60)
    assert fire(machine, schedule_store).tasks == 1
    machine.advance(60)
    assert fire(machine, schedule_store).tasks == 0
    run(machine)
    assert fire(machine, schedule_store).tasks == 1
    assert list(tasks(machine)) == ["tick-20270115T080200Z", "tick-20270115T080100Z"]


def keeper_of(machine: Machine, schedule_store: ScheduleStore) -> tuple[Housekeeper, Schedules]:
    """A housekeeper that looks at the schedules once an hour."""
    job = Schedules(schedule_store, timedelta(hours=1), GRACE, Lateness("late", "How late."))
    turns = RoundByRound(NoLocks(), Lock(name=job.name, at_most=timedelta(seconds=30)), "hk-1")
    return Housekeeper("hk-1", {job: turns}, NoLocks(), LockMetrics(), Tracing("housekeeper", Settings())), job


def test_more_schedules_of_one_due_time_than_a_round_looks_at_have_their_tasks_at_once(machine: Machine) -> None:
    schedule_store = ScheduleStore(machine.scripts)
    for number in range(250):
        schedule_store.put(schedule(f"s{number}", missed=Missed.SKIP))
    machine.advance(60)
    keeper, job = keeper_of(machine, schedule_store)
    assert keeper.run_once(job) == 250
    assert machine.redis.zcard(keys.TASKS) == 250
    assert (job.total.tasks, job.total.missed) == (250, 0)


def test_schedules_that_wait_are_not_checked_at_once_again(machine: Machine) -> None:
    schedule_store = ScheduleStore(machine.scripts, "1")
    for number in range(105):
        schedule_store.put(schedule(f"s{number}"))
    machine.advance(60)
    keeper, job = keeper_of(machine, schedule_store)
    assert keeper.run_once(job) == 1
    assert keeper.records[job.name].runs == 2


def test_putting_the_same_again_changes_nothing_and_another_spec_starts_anew(machine: Machine) -> None:
    schedule_store = ScheduleStore(machine.scripts)
    schedule_store.put(schedule())
    machine.advance(30)
    due = schedule_store.get("tick").due
    assert schedule_store.put(schedule()) == "unchanged"
    assert schedule_store.get("tick").due == due
    assert schedule_store.put(schedule(interval=120)) == "changed"
    assert schedule_store.get("tick").due == instant(machine.clock.now_us) + timedelta(seconds=120)


def test_a_schedule_of_webhooks_that_an_earlier_version_stored_is_paused_instead_of_fired(machine: Machine) -> None:
    schedule_store = ScheduleStore(machine.scripts)
    schedule_store.put(schedule("forged", type=WEBHOOK_TYPE))
    schedule_store.put(schedule())
    machine.advance(60)
    fired = fire(machine)
    assert (fired.tasks, fired.refused) == (1, 1)
    assert [task[:4] for task in tasks(machine)] == ["tick"]
    paused = schedule_store.get("forged").paused
    assert paused is not None
    assert "this type is internal" in paused["reason"]
    machine.advance(60)
    assert fire(machine).refused == 0
    schedule_store.resume("forged")
    machine.advance(60)
    assert fire(machine).refused == 1


def test_a_paused_schedule_makes_nothing_and_does_not_make_up_for_it(machine: Machine) -> None:
    schedule_store = ScheduleStore(machine.scripts)
    schedule_store.put(schedule())
    stored = schedule_store.pause("tick", "maintenance")
    assert (stored.due, stored.paused) == (None, {"reason": "maintenance"})
    machine.advance(600)
    assert fire(machine).tasks == 0
    schedule_store.resume("tick")
    assert fire(machine).tasks == 0
    machine.advance(60)
    assert fire(machine).tasks == 1


def test_a_deleted_schedule_is_gone_and_its_tasks_stay(machine: Machine) -> None:
    schedule_store = ScheduleStore(machine.scripts)
    schedule_store.put(schedule())
    machine.advance(60)
    fire(machine)
    schedule_store.delete("tick")
    with pytest.raises(ScheduleNotFound):
        schedule_store.get("tick")
    with pytest.raises(ScheduleNotFound):
        schedule_store.delete("tick")
    machine.advance(60)
    assert fire(machine).tasks == 0
    assert len(tasks(machine)) == 1


def test_a_file_creates_changes_and_removes_only_its_own(machine: Machine) -> None:
    schedule_store = ScheduleStore(machine.scripts)
    schedule_store.put(schedule("by_hand"))
    first = schedule_store.declare([schedule("a"), schedule("b"), schedule("c")])
    assert str(first) == "created a, b, c"
    second = schedule_store.declare([schedule("a"), schedule("b", interval=5)])
    assert str(second) == "changed b; removed c"
    assert str(schedule_store.declare([schedule("a"), schedule("b", interval=5)])) == "nothing changed"
    page = schedule_store.page(10)
    sources = {item.schedule.name: item.source for item in page.items}
    assert sources == {"a": "file", "b": "file", "by_hand": "api"}
    assert page.after is None


def test_pages_are_by_name(machine: Machine) -> None:
    schedule_store = ScheduleStore(machine.scripts)
    for name in "dacb":
        schedule_store.put(schedule(name))
    page = schedule_store.page(3)
    assert ([item.schedule.name for item in page.items], page.after) == (["a", "b", "c"], "c")
    assert [item.schedule.name for item in schedule_store.page(3, "c").items] == ["d"]


def test_a_page_ends_where_its_schedules_become_large(machine: Machine) -> None:
    schedule_store = ScheduleStore(machine.scripts)
    for name in "abcdef":
        schedule_store.put(schedule(name, data=json.dumps("x" * 1_000_000)))
    page = schedule_store.page(50)
    assert ([item.schedule.name for item in page.items], page.after) == (["a", "b", "c", "d"], "d")
    assert [item.schedule.name for item in schedule_store.page(50, "d").items] == ["e", "f"]


def test_the_list_of_due_times_is_rebuilt_when_it_was_deleted(machine: Machine) -> None:
    ScheduleStore(machine.scripts).put(schedule())
    machine.redis.delete(keys.SCHEDULES_DUE)
    machine.advance(60)
    assert fire(machine).tasks == 1


def test_a_schedule_that_cannot_be_read_does_not_stop_the_others(machine: Machine) -> None:
    schedule_store = ScheduleStore(machine.scripts)
    schedule_store.put(schedule("a"))
    schedule_store.put(schedule("b"))
    machine.redis.hset(keys.schedule("a"), "spec", "{")
    machine.advance(60)
    assert fire(machine).tasks == 1


def test_run_now_is_beside_the_due_times(machine: Machine) -> None:
    schedule_store = ScheduleStore(machine.scripts)
    schedule_store.put(schedule())
    due = schedule_store.get("tick").due
    Queues(machine.scripts, {"normal": 1}).submit([task_now(schedule(), new_task_id())])
    assert len(tasks(machine)) == 1
    assert schedule_store.get("tick").due == due
