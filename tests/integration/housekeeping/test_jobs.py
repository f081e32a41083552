"""What each job does in a round, and what the keeper makes of a lock that was lost in the middle of one."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from redis.exceptions import ConnectionError, ResponseError

from firmq.shared.conditions.observation import Observer
from firmq.shared.config.settings import Settings
from firmq.shared.domain.lock import Lock, Taken
from firmq.shared.domain.task import NewTask, TaskState, new_task_id
from firmq.shared.errors import LockLost
from firmq.shared.observability.tracing import Tracing
from firmq.shared.redis import schema_version
from firmq.shared.redis.client import text
from firmq.shared.redis.scripts import Scripts
from firmq.shared.stores.locks import FreeLock, Locks, NoLocks, RedisLocks
from firmq.shared.stores.maintenance import Pruned
from firmq.shared.stores.queues import Queues
from firmq.shared.stores.tasks import Records
from firmq.shared.stores.workers import WorkerInfo, Workers
from firmq.worker.housekeeping.jobs import max_elements, ttl
from firmq.worker.housekeeping.jobs.max_elements import MaxElements
from firmq.worker.housekeeping.jobs.ttl import Ttl
from firmq.worker.housekeeping.jobs.unlock import Unlock
from firmq.worker.housekeeping.lateness import Lateness
from firmq.worker.housekeeping.lock_metrics import LockMetrics
from firmq.worker.housekeeping.locking import Leadership, RoundByRound
from firmq.worker.housekeeping.metrics import Metrics, SystemGauges
from firmq.worker.housekeeping.registry import HousekeepingJob, RunResult, removed_until_done
from firmq.worker.housekeeping.runner import Housekeeper
from tests.integration.housekeeping.conftest import Machine
from tests.support.attempt_ends import claiming, ended, report
from tests.support.harness import WEIGHTS, wait_until
from tests.support.keys import keys

SECOND = timedelta(seconds=1)
FREE = FreeLock("any")


def submit(machine: Machine, count: int = 1, queue: str = "normal", **options: Any) -> list[str]:
    tasks = [NewTask(id=new_task_id(), type="noop", data="null", queue=queue, **options) for _ in range(count)]
    Queues(machine.scripts, WEIGHTS).submit(tasks)
    return [task.id for task in tasks]


def claim(machine: Machine, count: int = 1000) -> list[tuple[str, str]]:
    token = new_task_id()
    reply = machine.scripts.call("claim", *claiming("w1", token, 9_000_000, count, 1 << 20, "normal", count))
    return [(row[0].decode(), token) for row in reply[3]]


def finish(machine: Machine, tasks: list[tuple[str, str]], kind: str = "completed") -> None:
    for task_id, token in tasks:
        report(machine.scripts, ended(task_id, token, kind, '{"outcome": "completed"}'), worker="w1")


def counts(machine: Machine) -> dict[TaskState, int]:
    return {state: count for state, count in Records(machine.scripts, list(WEIGHTS)).counts().items() if count}


def unlock_job(scripts: Scripts, queues: list[str] | None = None) -> Unlock:
    return Unlock(scripts, queues or list(WEIGHTS), SECOND, 5, Lateness("late", "How late."))


def keeper_of(job: HousekeepingJob, locks: Locks, metrics: LockMetrics) -> Housekeeper:
    turns = RoundByRound(locks, Lock(name=job.name, at_most=timedelta(seconds=30)), "hk-1")
    return Housekeeper("hk-1", {job: turns}, locks, metrics, Tracing("housekeeper", Settings()))


# --- unlock ------------------------------------------------------------------------------------------------------


class Interrupted(Scripts):
    """Something happens before the second batch of a round."""

    calls = 0
    happening: Callable[[], object] = staticmethod(lambda: None)

    def call(self, name: str, *arguments: Any) -> Any:
        self.calls += name == "promote"
        if name == "promote" and self.calls == 2:
            self.happening()
        return super().call(name, *arguments)


def test_a_housekeeper_with_a_lost_lock_cannot_write(machine: Machine) -> None:
    ids = submit(machine, 1200, delay=SECOND)
    machine.advance(2)
    scripts = Interrupted(machine.redis, machine.clock)
    metrics = LockMetrics()
    keeper = keeper_of(unlock_job(scripts, ["normal"]), machine.instance("hk-1"), metrics)
    other = keeper_of(unlock_job(machine.scripts, ["normal"]), machine.instance("hk-2"), LockMetrics())

    def sleep_past_the_lock() -> None:
        # Its own clock stood still, as that of a suspended machine does: it trusts its lock, and the script does not.
        machine.clock.advance(timedelta(seconds=31))
        other.run_once(other.jobs[0])

    scripts.happening = sleep_past_the_lock
    keeper.run_once(keeper.jobs[0])
    assert metrics.refusals["unlock"] == 1
    assert keeper.records["unlock"].failures == 1
    assert sorted(map(text, machine.redis.lrange(keys.rq_queue("normal"), 0, -1))) == sorted(ids)


def test_one_that_knows_that_its_time_is_over_stops_by_itself(machine: Machine) -> None:
    submit(machine, 1200, delay=SECOND)
    machine.advance(2)
    scripts = Interrupted(machine.redis, machine.clock)
    scripts.happening = lambda: machine.advance(31)
    job = unlock_job(scripts, ["normal"])
    held = machine.instance("hk-1").acquire(Lock(name="unlock", at_most=timedelta(seconds=30)))
    assert held is not None
    with pytest.raises(LockLost):
        job.run(held)
    assert counts(machine) == {TaskState.PENDING: 200, TaskState.SCHEDULED: 1000}


def test_an_error_in_one_queue_does_not_stop_the_others(machine: Machine) -> None:
    submit(machine, 3, "low", delay=SECOND)
    submit(machine, 3, "high", delay=SECOND)
    machine.advance(2)

    class RefusesHigh(Scripts):
        def call(self, name: str, *arguments: Any) -> Any:
            if name == "promote" and arguments[0] == "high":
                raise ResponseError("it is about this queue alone")
            return super().call(name, *arguments)

    assert unlock_job(RefusesHigh(machine.redis, machine.clock)).run(FREE) == RunResult(3)
    assert machine.redis.llen(keys.rq_queue("low")) == 3


def test_due_tasks_of_a_queue_whose_index_was_damaged_are_moved(machine: Machine) -> None:
    submit(machine, 3, "high", delay=SECOND)
    machine.advance(2)
    machine.redis.set(keys.retrying("high"), "not a sorted set")
    assert unlock_job(machine.scripts).run(FREE) == RunResult(3)
    assert machine.redis.get(keys.quarantined(keys.retrying("high"))) == b"not a sorted set"


def test_a_round_in_which_every_queue_fails_is_a_failed_round(machine: Machine) -> None:
    class Away(Scripts):
        def call(self, name: str, *arguments: object) -> object:
            raise ConnectionError("gone")

    metrics = LockMetrics()
    keeper = keeper_of(unlock_job(Away(machine.redis)), NoLocks(), metrics)
    keeper.run_once(keeper.jobs[0])
    assert keeper.records["unlock"].failures == 1


def test_lateness_is_measured(machine: Machine) -> None:
    submit(machine, 7, delay=SECOND)
    machine.advance(1.3)
    job = unlock_job(machine.scripts)
    job.run(FREE)
    registry = CollectorRegistry()
    registry.register(job.lateness)
    shown = generate_latest(registry).decode()
    assert 'late_bucket{le="0.25"} 0.0' in shown
    assert 'late_bucket{le="0.5"} 7.0' in shown
    assert "late_count 7.0" in shown


# --- ttl, max_elements -------------------------------------------------------------------------------------------


def test_a_task_too_old_to_start_never_starts(machine: Machine) -> None:
    ids = submit(machine, 3, expires_in=timedelta(seconds=5))
    machine.advance(5)
    assert claim(machine) == []
    Ttl(machine.scripts, {}, SECOND).run(FREE)
    assert counts(machine) == {TaskState.EXPIRED: 3}
    assert {Records(machine.scripts, ["normal"]).state(each) for each in ids} == {TaskState.EXPIRED}


def test_history_stays_within_its_limit_under_a_flood(machine: Machine, caplog: pytest.LogCaptureFixture) -> None:
    job = MaxElements(machine.scripts, {TaskState.COMPLETED: 100, TaskState.FAILED: 10}, SECOND)
    submit(machine, 20)
    running = claim(machine)
    for _ in range(5):
        submit(machine, 200)
        tasks = claim(machine)
        finish(machine, tasks[:150])
        finish(machine, tasks[150:180], "failed")
        running += tasks[180:]
        machine.advance(1)
        job.run(FREE)
        assert counts(machine)[TaskState.COMPLETED] == 100
        assert counts(machine)[TaskState.FAILED] == 10
    assert job.removed == {TaskState.COMPLETED: 650, TaskState.FAILED: 140}
    assert counts(machine)[TaskState.RUNNING] == len(running) == 120
    assert "650" not in caplog.text
    assert "completed tasks removed, the oldest: more than the limit of 100 were kept" in caplog.text
    finish(machine, running)
    machine.advance(1)
    assert counts(machine)[TaskState.COMPLETED] == 220


def test_the_oldest_go_first(machine: Machine) -> None:
    submit(machine, 30)
    for pair in claim(machine):
        finish(machine, [pair])
        machine.advance(0.001)
    before = [text(each) for each in machine.redis.zrange(keys.ended("completed"), 0, -1)]
    MaxElements(machine.scripts, {TaskState.COMPLETED: 12}, SECOND).run(FREE)
    assert [text(each) for each in machine.redis.zrange(keys.ended("completed"), 0, -1)] == before[-12:]


def test_an_index_that_lies_does_not_remove_a_running_task(machine: Machine) -> None:
    submit(machine)
    [(task_id, _)] = claim(machine)
    machine.redis.zadd(keys.ended("completed"), {task_id: 1})
    MaxElements(machine.scripts, {TaskState.COMPLETED: 1}, SECOND).run(FREE)
    Ttl(machine.scripts, {TaskState.COMPLETED: timedelta()}, SECOND).run(FREE)
    assert Records(machine.scripts, ["normal"]).state(task_id) is TaskState.RUNNING


def test_a_limit_of_zero_is_none(machine: Machine) -> None:
    submit(machine, 5)
    finish(machine, claim(machine))
    assert MaxElements(machine.scripts, {TaskState.COMPLETED: 0}, SECOND).run(FREE) == RunResult()


# --- more than a round's work ------------------------------------------------------------------------------------


@pytest.fixture
def flooded(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> Machine:
    """What has ended is four rounds' work and more, and the jobs look twice an hour."""
    for job in (max_elements, ttl):
        monkeypatch.setattr(job, "BATCH", 20)
        monkeypatch.setattr(job, "ROUNDS", 2)
    submit(machine, 190)
    finish(machine, claim(machine))
    machine.advance(1)
    return machine


HALF_AN_HOUR = timedelta(minutes=30)


def test_more_than_one_round_removes_is_removed_at_once_under_one_lock(flooded: Machine) -> None:
    jobs: dict[HousekeepingJob, int] = {
        MaxElements(flooded.scripts, {TaskState.COMPLETED: 100, TaskState.FAILED: 10}, HALF_AN_HOUR): 100,
        Ttl(flooded.scripts, {TaskState.COMPLETED: timedelta()}, HALF_AN_HOUR): 0,
    }
    for job, left in jobs.items():
        before, metrics = counts(flooded)[TaskState.COMPLETED], LockMetrics()
        keeper = keeper_of(job, RedisLocks(flooded.scripts, "hk-1", metrics, flooded.ticker), metrics)
        assert keeper.run_once(job) == keeper.records[job.name].items == before - left
        assert counts(flooded).get(TaskState.COMPLETED, 0) == left
        assert keeper.records[job.name].runs == 3
        assert metrics.results[job.name, Taken.ACQUIRED] == 1


def test_a_round_that_follows_at_once_ends_with_the_lock_too(flooded: Machine) -> None:
    class TakenAway(Scripts):
        calls = 0

        def call(self, name: str, *arguments: Any) -> Any:
            self.calls += name == "prune"
            if self.calls == 3:  # the first step of the second round
                flooded.redis.delete(keys.lock("max_elements"))
            return super().call(name, *arguments)

    job = MaxElements(TakenAway(flooded.redis, flooded.clock), {TaskState.COMPLETED: 100}, HALF_AN_HOUR)
    metrics = LockMetrics()
    keeper = keeper_of(job, flooded.instance("hk-1"), metrics)
    assert keeper.run_once(job) == 40
    assert metrics.refusals["max_elements"] == 1
    assert counts(flooded) == {TaskState.COMPLETED: 150}


def test_one_that_is_to_end_begins_no_further_round(flooded: Machine) -> None:
    job = MaxElements(flooded.scripts, {TaskState.COMPLETED: 100}, HALF_AN_HOUR)
    keeper = keeper_of(job, NoLocks(), LockMetrics())
    keeper.stopped.set()
    assert keeper.run_once(job) == 40


def test_records_still_needed_are_not_checked_at_once_again() -> None:
    looks = [Pruned(removed=1, looked=20)] * 5
    assert removed_until_done(FREE, looks.pop, batch=20, most=3) == RunResult(3, more=False)


# --- metrics -----------------------------------------------------------------------------------------------------


@pytest.fixture
def gauges(machine: Machine) -> tuple[SystemGauges, Leadership, Metrics, RedisLocks]:
    locks = machine.instance("hk-1")
    leadership = Leadership(locks, Lock(name="metrics", at_most=timedelta(seconds=60)), "hk-1")
    job = Metrics(Observer(machine.scripts, Settings()), SECOND)
    return SystemGauges(leadership, job), leadership, job, locks


def shown(gauges: SystemGauges) -> dict[str, float]:
    return {sample.name: sample.value for family in gauges.collect() for sample in family.samples}


def shown_of(gauges: SystemGauges, name: str) -> dict[str, float]:
    """By queue, where it is not 0."""
    samples = [sample for family in gauges.collect() for sample in family.samples if sample.name == name]
    return {sample.labels["priority"]: sample.value for sample in samples if sample.value}


def lead(leadership: Leadership, job: Metrics) -> None:
    held = leadership.begin()
    assert held is not None
    job.run(held)


def test_gauges_are_the_leaders_alone(
    machine: Machine, gauges: tuple[SystemGauges, Leadership, Metrics, RedisLocks]
) -> None:
    view, leadership, job, _ = gauges
    assert "firmq_tasks" not in shown(view)
    assert shown(view)["firmq_housekeeper_leader"] == 0
    lead(leadership, job)
    assert shown(view)["firmq_housekeeper_leader"] == 1
    assert "firmq_tasks" in shown(view)
    machine.redis.delete(keys.lock("metrics"))
    assert "firmq_tasks" not in shown(view)
    assert shown(view)["firmq_housekeeper_leader"] == 0


def test_the_leader_shows_who_serves_each_queue_and_what_is_paused(
    machine: Machine, gauges: tuple[SystemGauges, Leadership, Metrics, RedisLocks]
) -> None:
    view, leadership, job, _ = gauges
    about = {"host": "h", "pid": 1, "version": "1", "executors": 1, "started_at": datetime(2026, 1, 1, tzinfo=UTC)}
    for name, queues, state in (("a", ("high", "low"), "busy"), ("b", ("high",), "idle"), ("c", ("low",), "draining")):
        Workers(machine.redis).announce(WorkerInfo(name=name, queues=queues, state=state, **about))  # type: ignore[arg-type]
    Queues(machine.scripts, WEIGHTS).pause("low", "a test")
    lead(leadership, job)
    samples = [sample for family in view.collect() for sample in family.samples]
    by_queue = {(each.name, each.labels.get("priority")): each.value for each in samples}
    workers = {name: by_queue["firmq_queue_workers", name] for name in WEIGHTS}
    assert workers == {"critical": 0, "high": 2, "normal": 0, "low": 1}
    assert [name for name in WEIGHTS if by_queue["firmq_queue_paused", name]] == ["low"]


def test_the_leader_shows_what_is_overdue(
    machine: Machine, gauges: tuple[SystemGauges, Leadership, Metrics, RedisLocks]
) -> None:
    view, leadership, job, _ = gauges
    submit(machine, delay=SECOND)
    submit(machine, queue="normal")
    claim(machine)
    machine.advance(15)
    lead(leadership, job)
    assert shown(view)["firmq_task_overdue_seconds"] == pytest.approx(14, abs=0.5)
    assert shown(view)["firmq_lease_overdue_seconds"] == pytest.approx(6, abs=0.5)
    assert shown(view)["firmq_schedule_overdue_seconds"] == 0


def test_the_leader_shows_how_long_a_tenant_has_had_no_turn(
    machine: Machine, gauges: tuple[SystemGauges, Leadership, Metrics, RedisLocks]
) -> None:
    view, leadership, job, _ = gauges
    submit(machine, fair_key="ann")
    machine.advance(15)
    submit(machine, fair_key="bob")
    lead(leadership, job)
    assert shown_of(view, "firmq_tenant_turn_age_seconds") == {"normal": pytest.approx(15, abs=0.1)}
    claim(machine, 1)
    lead(leadership, job)
    assert shown_of(view, "firmq_tenant_turn_age_seconds") == {}
    machine.advance(15)
    submit(machine, score=1.0)
    lead(leadership, job)
    assert shown_of(view, "firmq_tenant_turn_age_seconds") == {"normal": pytest.approx(15, abs=0.1)}
    Queues(machine.scripts, WEIGHTS).pause("normal", "a test")
    lead(leadership, job)
    assert shown_of(view, "firmq_tenant_turn_age_seconds") == {}


def test_the_leader_shows_how_redis_is_set_up(
    machine: Machine, gauges: tuple[SystemGauges, Leadership, Metrics, RedisLocks]
) -> None:
    view, leadership, job, _ = gauges
    machine.redis.config_set("maxmemory", 512 << 20)
    machine.redis.config_set("maxmemory-policy", "volatile-lru")
    try:
        lead(leadership, job)
    finally:
        machine.redis.config_set("maxmemory", 0)
        machine.redis.config_set("maxmemory-policy", "noeviction")
    assert shown(view)["firmq_redis_max_memory_bytes"] == 512 << 20
    assert 1 << 16 < shown(view)["firmq_redis_used_memory_bytes"] < 512 << 20
    samples = [sample for family in view.collect() for sample in family.samples]
    assert [each.labels for each in samples if each.name == "firmq_redis_eviction_policy"] == [
        {"policy": "volatile-lru"}
    ]


def test_a_redis_that_does_not_say_how_it_is_leaves_the_other_gauges(
    gauges: tuple[SystemGauges, Leadership, Metrics, RedisLocks], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuses(*_: object, **__: object) -> None:
        raise ResponseError("NOPERM this user has no permissions to run the 'info' command")

    view, leadership, job, _ = gauges
    monkeypatch.setattr("redis.Redis.info", refuses)
    lead(leadership, job)
    assert "firmq_tasks" in shown(view)
    assert "firmq_redis_used_memory_bytes" not in shown(view)


def test_a_frozen_leader_shows_nothing_when_it_wakes(
    machine: Machine, gauges: tuple[SystemGauges, Leadership, Metrics, RedisLocks]
) -> None:
    view, leadership, job, _ = gauges
    lead(leadership, job)
    machine.advance(61)
    assert "firmq_tasks" not in shown(view)


def test_gauges_that_are_too_old_disappear(
    gauges: tuple[SystemGauges, Leadership, Metrics, RedisLocks],
) -> None:
    view, leadership, job, _ = gauges
    lead(leadership, job)
    assert job.measured is not None
    view.monotonic = lambda: job.measured.at + 6.1 if job.measured else 0.0
    assert shown(view)["firmq_housekeeper_leader"] == 1
    assert "firmq_tasks" not in shown(view)


def test_a_leader_without_redis_leads_for_as_long_as_it_may_trust_its_lock(
    machine: Machine, gauges: tuple[SystemGauges, Leadership, Metrics, RedisLocks]
) -> None:
    view, leadership, job, locks = gauges

    class Away(Scripts):
        def call(self, name: str, *arguments: object) -> object:
            raise ConnectionError("gone")

    lead(leadership, job)
    locks.scripts = Away(machine.redis)
    machine.advance(47)
    assert shown(view)["firmq_housekeeper_leader"] == 1
    machine.advance(2)
    assert shown(view)["firmq_housekeeper_leader"] == 0


def test_jobs_live_through_data_of_another_version_and_go_on_when_it_is_gone(machine: Machine) -> None:
    instance = RedisLocks(Scripts(machine.redis), "hk-1")
    job = Ttl(Scripts(machine.redis), {}, timedelta(milliseconds=5))
    keeper = keeper_of(job, instance, LockMetrics())
    keeper.start()
    record = keeper.records[job.name]
    try:
        wait_until(lambda: record.runs > 2, "it goes round")
        ours = machine.redis.get(keys.FORMAT) or str(schema_version.FORMAT)
        machine.redis.set(keys.FORMAT, "99")
        wait_until(lambda: not instance.reachable, "it is refused")
        time.sleep(0.05)
        machine.redis.set(keys.FORMAT, ours)
        before = record.runs
        wait_until(lambda: record.runs > before + 2, "it goes on")
    finally:
        keeper.stop()
        instance.stop()
