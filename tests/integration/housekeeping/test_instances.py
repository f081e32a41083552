"""Three housekeepers as real processes: they share the work, one of them leads, and any of them may die or freeze.

With TEST_LONG=1 the tests of chaos last as long as the promises say (two minutes, one minute) instead of seconds.
"""

from __future__ import annotations

import os
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial

import pytest

from shared import keys
from shared.clock import instant
from shared.locks import LockDesk
from shared.redis_client import text
from shared.schedules import Missed, Schedule
from shared.tasks import TaskState
from shared.timetable import Timetable
from tests.harness import WEIGHTS, System, wait_until
from tests.integration.housekeeping.cluster import Cluster, Member, Samples

LONG = os.environ.get("TEST_LONG") == "1"
STOPPED = ("taskqueue_lock_refused_writes_total", "taskqueue_lock_lost_total", "taskqueue_lock_stops_total")
GAUGES = ("tasks_in_dlq_total", "taskqueue_pending_tasks", "taskqueue_oldest_pending_age_seconds", "taskqueue_tasks")


@pytest.fixture
def cluster(system: System) -> Iterator[Cluster]:
    """Three housekeepers that run, one of which leads."""
    members = Cluster(system)
    members.start()
    wait_until(members.leader, "somebody leads")
    yield members
    members.close()


def shows_gauges(samples: Samples) -> bool:
    return any(name in GAUGES for name, _ in samples)


def test_one_leads_and_shows_the_gauges_and_all_say_who_they_are(system: System, cluster: Cluster) -> None:
    leader = cluster.leader()
    assert leader is not None
    wait_until(lambda: shows_gauges(leader.scrape()), "the leader shows gauges")
    for member in cluster.members:
        wait_until(member.scrape, "it answers")
        samples = member.scrape()
        assert shows_gauges(samples) is (member is leader)
        assert samples["taskqueue_housekeeper_leader", ()] == (member is leader)
        assert ("taskqueue_housekeeper_info", (("instance_id", member.name),)) in samples
    assert leader.value("taskqueue_housekeeper_leader_term") > 1_700_000_000_000
    logs = system.logs()
    assert f"Instance {leader.name} elected as metrics leader" in logs
    assert "Acquired distributed lock timeout by instance hk-" in logs
    assert "Skipping task recovery - already running on another instance" in logs


def test_together_they_keep_to_the_interval_of_a_job(cluster: Cluster) -> None:
    def runs() -> float:
        return sum(member.value("taskqueue_housekeeping_runs_total", job="timeout") for member in cluster.members)

    before, began = runs(), time.monotonic()
    wait_until(lambda: time.monotonic() - began > 3, "three seconds passed")
    assert runs() - before <= (time.monotonic() - began) / (0.8 * 0.2) + 2


def test_a_leader_that_ends_in_order_is_followed_at_once(cluster: Cluster) -> None:
    leader = cluster.leader()
    assert leader is not None
    assert leader.process is not None
    leader.process.terminate()
    leader.process.wait(10)
    began = time.monotonic()
    wait_until(cluster.leader, "another leads", 2.5)
    assert time.monotonic() - began < 2


def test_a_leader_asked_to_step_down_shows_nothing_from_then_on(system: System, cluster: Cluster) -> None:
    leader = cluster.leader()
    assert leader is not None
    LockDesk(system.scripts).step_down("a test", "to see another lead")
    assert not leader.leads()
    assert not shows_gauges(leader.scrape())
    following = wait_until(cluster.leader, "another leads", 3)
    assert following is not leader


def test_a_leader_whose_lock_is_taken_away_stops_at_once(system: System, cluster: Cluster) -> None:
    leader = cluster.leader()
    assert leader is not None
    desk = LockDesk(system.scripts)
    lock = desk.get("metrics")
    assert lock is not None
    assert lock.token is not None
    assert desk.force("metrics", lock.token, "a test", "to see it stop") == leader.name
    assert sum(member.leads() for member in cluster.members) <= 1
    after = wait_until(lambda: desk.get("metrics"), "the lock is known")
    assert after.token != lock.token


def test_a_housekeeper_alone_needs_no_locks(system: System) -> None:
    alone = Cluster(system, 1, HOUSEKEEPER_DISTRIBUTED_EXECUTION_ENABLED="false")
    alone.start()
    wait_until(alone.leader, "it leads")
    wait_until(lambda: shows_gauges(alone.members[0].scrape()), "it shows gauges")
    assert system.redis.keys("taskqueue:housekeeper:lock:*") == []
    alone.close()


# --- Chaos -------------------------------------------------------------------------------------------------------


@dataclass
class Watch:
    """What was seen at the scrapes."""

    cluster: Cluster
    scrapes: int = 0
    leaders: Counter[int] = field(default_factory=Counter)
    gauges: Counter[int] = field(default_factory=Counter)
    longest_gap: float = 0.0
    refused: Counter[str] = field(default_factory=Counter)
    _last: float = field(default_factory=time.monotonic)

    def look(self) -> None:
        seen = {member.name: member.scrape(0.2) for member in self.cluster.members if not member.frozen}
        self.scrapes += 1
        leaders = sum(samples.get(("taskqueue_housekeeper_leader", ()), 0) for samples in seen.values())
        self.leaders[int(leaders)] += 1
        self.gauges[sum(map(shows_gauges, seen.values()))] += 1
        now = time.monotonic()
        if leaders:
            self._last = now
        self.longest_gap = max(self.longest_gap, now - self._last)
        for name, samples in seen.items():
            stopped = sum(value for (metric, _), value in samples.items() if metric in STOPPED)
            self.refused[name] = max(self.refused[name], int(stopped))


def kill_and_restart(member: Member) -> Callable[[], None]:
    member.kill()
    return member.start


def freeze(member: Member) -> Callable[[], None]:
    member.freeze()
    return member.thaw


def cut_off(member: Member) -> Callable[[], None]:
    member.relay.cut = True

    def mend() -> None:
        member.relay.cut = False

    return mend


@pytest.mark.timeout(240)
def test_kills_freezes_and_cuts_leave_one_leader_and_move_every_task_once(system: System, cluster: Cluster) -> None:
    seconds, seed = (120, random.randrange(10_000)) if LONG else (24, 4)
    print(f"seed {seed}")
    dice = random.Random(seed)
    watch, submitted = Watch(cluster), []
    end = time.monotonic() + seconds
    acts = [kill_and_restart, freeze, cut_off]
    turn = 0
    while time.monotonic() < end:
        # Every other act is aimed at the leader: those are the ones that can go wrong.
        victim = (cluster.leader() if turn % 2 == 0 else None) or dice.choice(cluster.members)
        undo = acts[turn % 3](victim)
        turn += 1
        until = time.monotonic() + dice.uniform(3.5, 5)  # beyond the lease of three seconds
        while time.monotonic() < until:
            queue = dice.choice(list(WEIGHTS))
            delay = timedelta(seconds=dice.uniform(0, 2))
            submitted += system.submit_many([("noop", "null")] * 20, queue, delay=delay)
            watch.look()
        undo()
    wait_until(lambda: system.records.counts()[TaskState.SCHEDULED] == 0, "all are moved", 15)
    tickets = [ticket for queue in WEIGHTS for ticket in system.redis.lrange(keys.rq_queue(queue), 0, -1)]
    print(f"{turn} acts, {watch.scrapes} scrapes, leaders {dict(watch.leaders)}, gauges {dict(watch.gauges)}")
    print(f"longest gap {watch.longest_gap:.2f} s, {len(submitted)} tasks, stopped or refused {dict(watch.refused)}")
    assert sorted(map(text, tickets)) == sorted(submitted)
    assert max(watch.leaders) == 1
    assert max(watch.gauges) == 1
    assert watch.longest_gap < 3  # the lease


def is_past(system: System, moment: datetime) -> bool:
    return instant(system.scripts.now_us()) > moment


@pytest.mark.timeout(150)
def test_schedules_of_every_second_make_each_task_once_while_housekeepers_die(system: System, cluster: Cluster) -> None:
    seconds = 60 if LONG else 12
    timetable = Timetable(system.scripts)
    names = [f"tick{number}" for number in range(10)]
    for name in names:
        timetable.put(Schedule(name=name, type="noop", queue="normal", interval=1, missed=Missed.ALL))
    first = min(stored.due for name in names if (stored := timetable.get(name)).due)
    for number in (1, 2):
        then = first + timedelta(seconds=number * seconds / 3)
        wait_until(partial(is_past, system, then), "time passed", seconds)
        victim = cluster.members[number]
        victim.kill()
        victim.start()
    last = first + timedelta(seconds=seconds - 1)
    wait_until(
        lambda: all((due := timetable.get(name).due) and due > last for name in names), "all are past it", seconds
    )
    wanted = {f"{name}-{first + timedelta(seconds=at):%Y%m%dT%H%M%SZ}" for name in names for at in range(seconds)}
    made = Counter(map(text, system.redis.lrange(keys.rq_queue("normal"), 0, -1)))
    print(f"{sum(made[each] for each in wanted)} tasks for {len(wanted)} due times")
    assert {each: made[each] for each in wanted} == dict.fromkeys(wanted, 1)


def slow_round(system: System) -> tuple[Cluster, list[str]]:
    """Two housekeepers, far from Redis, in the middle of a round that moves thousands of tasks."""
    ids = [
        task
        for queue in WEIGHTS
        for task in system.submit_many([("noop", "null")] * 3000, queue, delay=timedelta(seconds=2.5))
    ]
    cluster = Cluster(system, 2)
    for member in cluster.members:
        member.relay.delay = 0.03
    cluster.start()
    wait_until(lambda: 0 < system.redis.llen(keys.rq_queue("normal")) < 3000, "a round has begun")
    return cluster, ids


def holder_of(system: System, cluster: Cluster, name: str) -> Member:
    lock = LockDesk(system.scripts).get(name)
    assert lock is not None
    return next(member for member in cluster.members if member.name == lock.owner)


def moved(system: System) -> list[str]:
    wait_until(lambda: system.records.counts()[TaskState.SCHEDULED] == 0, "all are moved", 30)
    return sorted(text(ticket) for queue in WEIGHTS for ticket in system.redis.lrange(keys.rq_queue(queue), 0, -1))


def test_a_holder_that_was_unlocked_in_the_middle_is_refused_and_counted(system: System) -> None:
    cluster, ids = slow_round(system)
    try:
        lock = LockDesk(system.scripts).get("unlock")
        assert lock is not None
        assert lock.token is not None
        LockDesk(system.scripts).force("unlock", lock.token, "a test", "to see it refused")
        wait_until(
            lambda: sum(each.value("taskqueue_lock_refused_writes_total", lock="unlock") for each in cluster.members),
            "its next write is refused",
        )
        assert moved(system) == sorted(ids)
    finally:
        cluster.close()


def test_a_holder_frozen_in_the_middle_beyond_its_lock_moves_nothing_more(system: System) -> None:
    cluster, ids = slow_round(system)
    try:
        frozen = holder_of(system, cluster, "unlock")
        frozen.freeze()
        assert moved(system) == sorted(ids)
        frozen.thaw()
        wait_until(
            lambda: sum(frozen.value(metric, lock="unlock") for metric in STOPPED), "it knows that its time is over"
        )
        assert moved(system) == sorted(ids)
    finally:
        cluster.close()


@pytest.mark.parametrize("how", ["frozen", "cut off"])
def test_a_holder_that_comes_back_late_stops_and_is_counted(system: System, how: str) -> None:
    cluster = Cluster(system, 2, HOUSEKEEPER_UNLOCK_INTERVAL="0.02")
    try:
        cluster.start()
        leader = wait_until(cluster.leader, "somebody leads")
        other = next(member for member in cluster.members if member is not leader)
        undo = freeze(leader) if how == "frozen" else cut_off(leader)
        wait_until(other.leads, "the other leads", 6)
        undo()
        wait_until(
            lambda: leader.value("taskqueue_lock_acquisitions_total", lock="metrics", result="busy") > 0, "it asks"
        )
        assert not leader.leads()
        assert other.leads()
    finally:
        cluster.close()


# --- A worker dies -----------------------------------------------------------------------------------------------


def test_a_killed_workers_task_runs_again_within_fifteen_seconds(system: System) -> None:
    plain = {"LEASE_TIME": "9", "HOUSEKEEPER_TIMEOUT_INTERVAL": "1", "HOUSEKEEPER_UNLOCK_INTERVAL": "0.25"}
    system.start_housekeeper(**plain, HOUSEKEEPER_DISTRIBUTED_EXECUTION_ENABLED="true")
    first = system.start_worker(**plain, WORKER_EXECUTORS="1")
    task_id = system.submit("slowly", '{"seconds": 3}')
    wait_until(lambda: system.records.state(task_id) is TaskState.RUNNING, "it runs")
    first.kill()
    first.wait()
    died = time.monotonic()
    system.start_worker(**plain)
    wait_until(lambda: system.records.get(task_id).summary.attempt == 2, "it runs again", 15)
    print(f"ran again after {time.monotonic() - died:.1f} s")
    assert system.ended(task_id).summary.state is TaskState.COMPLETED
