"""Housekeepers are killed, frozen and cut off from Redis, and nobody notices.

With TEST_LONG=1 the tests last as long as the promises say (two minutes, one minute) instead of seconds.
"""

from __future__ import annotations

import os
import random
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial

import pytest

from firmq.shared.config.settings import Settings
from firmq.shared.domain.clock import instant
from firmq.shared.domain.schedule import Missed, Schedule
from firmq.shared.domain.task import TaskState
from firmq.shared.redis.client import text
from firmq.shared.stores.locks import LockAdmin
from firmq.shared.stores.schedules import ScheduleStore
from tests.integration.housekeeping.cluster import Cluster, Member, shows_gauges
from tests.support.figures import judge, judge_since
from tests.support.harness import WEIGHTS, System, wait_until
from tests.support.keys import keys

LONG = os.environ.get("TEST_LONG") == "1"
AT_ONCE = 0.5
"""Seconds in which no lease passes on from one who has just shown it: what is seen within them is seen at a time."""
STOPPED = ("firmq_lock_refused_writes_total", "firmq_lock_lost_total", "firmq_lock_stops_total")


@dataclass
class ExecutorMonitor:
    """What was seen at the scrapes."""

    cluster: Cluster
    scrapes: int = 0
    leaders: Counter[int] = field(default_factory=Counter)
    gauges: Counter[int] = field(default_factory=Counter)
    longest_gap: float = 0.0
    longest_pause: float = 0.0
    """Seconds between two scrapes: how late this machine lets any process be."""
    refused: Counter[str] = field(default_factory=Counter)
    _looked_at: float = field(default_factory=time.monotonic)
    _unled_since: float | None = None

    def look(self) -> None:
        began = time.monotonic()
        seen = {member.name: member.scrape(0.2) for member in self.cluster.members if not member.frozen}
        at_once = time.monotonic() - began < AT_ONCE
        self.scrapes += 1
        leaders = sum(samples.get(("firmq_housekeeper_leader", ()), 0) for samples in seen.values())
        if at_once:
            self.leaders[int(leaders)] += 1
            self.gauges[sum(map(shows_gauges, seen.values()))] += 1
        now = time.monotonic()
        self.longest_pause = max(self.longest_pause, now - self._looked_at)
        self._looked_at = now
        self._unled_since = None if leaders else self._unled_since or now
        self.longest_gap = max(self.longest_gap, now - (self._unled_since or now))
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

    def quarantine() -> None:
        member.relay.cut = False

    return quarantine


@pytest.mark.timeout(400)
def test_faults_leave_one_leader_that_moves_every_task_once(system: System, cluster: Cluster) -> None:
    seconds, seed = (120, random.randrange(10_000)) if LONG else (18, 4)
    print(f"seed {seed}")
    dice = random.Random(seed)
    watch, submitted = ExecutorMonitor(cluster), []
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
    wait_until(lambda: system.records.counts()[TaskState.SCHEDULED] == 0, "all are moved", 60)
    tickets = [ticket for queue in WEIGHTS for ticket in system.redis.lrange(keys.rq_queue(queue), 0, -1)]
    print(f"{turn} acts, {watch.scrapes} scrapes, leaders {dict(watch.leaders)}, gauges {dict(watch.gauges)}")
    print(f"longest gap {watch.longest_gap:.2f} s, longest pause {watch.longest_pause:.2f} s, {len(submitted)} tasks")
    print(f"stopped or refused {dict(watch.refused)}")
    assert sorted(map(text, tickets)) == sorted(submitted)
    assert max(watch.leaders) == 1
    assert max(watch.gauges) == 1
    # The lease, and at most a second for a machine that lets the others see its end late.
    assert watch.longest_gap < 30
    judge("the longest time without a leader", watch.longest_gap, 3 + min(watch.longest_pause, 1))


@pytest.mark.alone
@pytest.mark.timeout(900)
def test_a_leader_that_is_frozen_or_killed_is_replaced_by_one_of_many(system: System) -> None:
    """With TEST_LONG=1: 30 instances with the default times, twenty times."""
    size, times = (30, 20) if LONG else (6, 4)
    shipped = Settings()
    default = {
        "HOUSEKEEPER_LEADER_LEASE": f"{shipped.housekeeper_leader_lease:g}",
        "HOUSEKEEPER_METRICS_INTERVAL": f"{shipped.housekeeper_metrics_interval:g}",
        "HOUSEKEEPER_DISTRIBUTED_EXECUTION_LOCK_TTL": f"{shipped.housekeeper_distributed_execution_lock_ttl:g}",
    }
    cluster = Cluster(system, size, **(default if LONG else {}))
    watch, terms = ExecutorMonitor(cluster), list[float]()
    cluster.start()
    try:
        for turn in range(times):
            leader = wait_until(cluster.leader, "one leads", 60)
            terms.append(leader.value("firmq_housekeeper_leader_term"))
            began = time.monotonic()
            undo = (freeze, kill_and_restart)[turn % 2](leader)
            wait_until(partial(_another_leads, watch, leader), "another leads", 60)
            judge_since("until another leads", began, 15)
            undo()
            for _ in range(5):
                watch.look()
    finally:
        cluster.close()
    print(f"{watch.scrapes} scrapes of {size}, leaders {dict(watch.leaders)}, gauges {dict(watch.gauges)}, {terms}")
    assert terms == sorted(set(terms)), "each time another term"
    assert max(watch.leaders) == 1
    assert max(watch.gauges) == 1


def _another_leads(watch: ExecutorMonitor, leader: Member) -> bool:
    watch.look()
    found = watch.cluster.leader()
    return found is not None and found is not leader


def is_past(system: System, moment: datetime) -> bool:
    return instant(system.scripts.now_us()) > moment


@pytest.mark.timeout(300)
def test_schedules_of_every_second_make_each_task_once_while_housekeepers_die(system: System, cluster: Cluster) -> None:
    seconds = 60 if LONG else 12
    schedule_store = ScheduleStore(system.scripts)
    names = [f"tick{number}" for number in range(10)]
    for name in names:
        schedule_store.put(Schedule(name=name, type="noop", queue="normal", interval=1, missed=Missed.ALL))
    # The latest of them: a second may have begun while they were stored one after the other.
    first = max(stored.due for name in names if (stored := schedule_store.get(name)).due)
    for number in (1, 2):
        then = first + timedelta(seconds=number * seconds / 3)
        wait_until(partial(is_past, system, then), "time passed")
        victim = cluster.members[number]
        victim.kill()
        victim.start()
    last = first + timedelta(seconds=seconds - 1)
    wait_until(lambda: all((due := schedule_store.get(name).due) and due > last for name in names), "all are past it")
    wanted = {f"{name}-{first + timedelta(seconds=at):%Y%m%dT%H%M%SZ}" for name in names for at in range(seconds)}
    made = Counter(map(text, system.redis.lrange(keys.rq_queue("normal"), 0, -1)))
    print(f"{sum(made[each] for each in wanted)} tasks for {len(wanted)} due times")
    assert {each: made[each] for each in wanted} == dict.fromkeys(wanted, 1)


def slow_round(system: System, **environment: str) -> tuple[Cluster, list[str]]:
    """Two housekeepers in the middle of a round that moves thousands of tasks; they stay there, far from Redis."""
    ids = [
        task
        for queue in WEIGHTS
        for task in system.submit_many([("noop", "null")] * 3000, queue, delay=timedelta(seconds=2.5))
    ]
    cluster = Cluster(system, 2, **environment)
    distance(cluster, 0.03)
    cluster.start()
    wait_until(lambda: 0 < system.redis.llen(keys.rq_queue("normal")) < 3000, "a round has begun")
    distance(cluster, 1)
    return cluster, ids


def distance(cluster: Cluster, seconds: float) -> None:
    for member in cluster.members:
        member.relay.delay = seconds


def holder_of(system: System, cluster: Cluster, name: str) -> Member:
    lock = LockAdmin(system.scripts).get(name)
    assert lock is not None
    return next(member for member in cluster.members if member.name == lock.owner)


def moved(system: System) -> list[str]:
    wait_until(lambda: system.records.counts()[TaskState.SCHEDULED] == 0, "all are moved", 30)
    return sorted(text(ticket) for queue in WEIGHTS for ticket in system.redis.lrange(keys.rq_queue(queue), 0, -1))


def test_a_holder_that_was_unlocked_in_the_middle_is_refused_and_counted(system: System) -> None:
    # With a long life the lock is not renewed meanwhile: its holder does not learn of its loss before it writes.
    cluster, ids = slow_round(system, HOUSEKEEPER_DISTRIBUTED_EXECUTION_LOCK_TTL="60")
    try:
        lock = LockAdmin(system.scripts).get("unlock")
        assert lock is not None
        assert lock.token is not None
        LockAdmin(system.scripts).force("unlock", lock.token, "a test", "to see it refused")
        distance(cluster, 0.03)
        wait_until(
            lambda: sum(each.value("firmq_lock_refused_writes_total", lock="unlock") for each in cluster.members),
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
        distance(cluster, 0.03)
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
        wait_until(other.leads, "the other leads")
        undo()
        wait_until(lambda: leader.value("firmq_lock_acquisitions_total", lock="metrics", result="busy") > 0, "it asks")
        assert not leader.leads()
        assert other.leads()
    finally:
        cluster.close()
