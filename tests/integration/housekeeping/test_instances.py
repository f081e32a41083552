"""Three housekeepers as real processes: they share the work, and one of them leads."""

from __future__ import annotations

import os
import time

from firmq.shared.config.settings import Settings
from firmq.shared.domain.task import TaskState
from firmq.shared.stores.locks import LockAdmin
from tests.integration.housekeeping.cluster import Cluster, shows_gauges
from tests.support.figures import judge_since
from tests.support.harness import System, wait_until
from tests.support.keys import keys

LONG = os.environ.get("TEST_LONG") == "1"
STOPPED = ("firmq_lock_refused_writes_total", "firmq_lock_lost_total", "firmq_lock_stops_total")
GAUGES = ("tasks_in_dlq_total", "firmq_pending_tasks", "firmq_oldest_pending_age_seconds", "firmq_tasks")


def test_one_leads_and_shows_the_gauges_and_all_say_who_they_are(system: System, cluster: Cluster) -> None:
    leader = wait_until(cluster.leader, "one leads")
    wait_until(lambda: shows_gauges(leader.scrape()), "the leader shows gauges")
    for member in cluster.members:
        samples = wait_until(member.scrape, "it answers")
        assert shows_gauges(samples) is (member is leader)
        assert samples["firmq_housekeeper_leader", ()] == (member is leader)
        assert ("firmq_housekeeper_info", (("instance_id", member.name),)) in samples
    assert leader.scrape(60)["firmq_housekeeper_leader_term", ()] > 1_700_000_000_000
    logs = system.logs()
    assert f"Instance {leader.name} elected as metrics leader" in logs
    assert "Acquired distributed lock timeout by instance hk-" in logs
    assert "Released distributed lock timeout by instance hk-" in logs
    assert "Skipping task recovery - already running on another instance" in logs


def test_together_they_keep_to_the_interval_of_a_job(cluster: Cluster) -> None:
    def runs() -> float:
        counted = "firmq_housekeeping_runs_total", (("name", "timeout"),)
        return sum(member.scrape(60).get(counted, 0) for member in cluster.members)

    began, before = time.monotonic(), runs()
    wait_until(lambda: time.monotonic() - began > 3, "three seconds passed")
    after = runs()
    assert after - before <= (time.monotonic() - began) / (0.8 * 0.2) + 2


def test_a_leader_that_ends_in_order_is_followed_at_once(system: System, cluster: Cluster) -> None:
    leader = wait_until(cluster.leader, "one leads")
    assert leader.process is not None
    leader.process.terminate()
    leader.process.wait(30)
    began = time.monotonic()
    wait_until(cluster.leader, "another leads")
    judge_since("until another leads", began, 2)
    assert f"Instance {leader.name} is no longer the metrics leader" in system.logs(), "it gave its lock up"


def test_a_leader_that_is_killed_is_followed_within_ten_seconds_by_default(system: System) -> None:
    shipped = Settings()
    members = Cluster(
        system,
        2,
        HOUSEKEEPER_LEADER_LEASE=f"{shipped.housekeeper_leader_lease:g}",
        HOUSEKEEPER_METRICS_INTERVAL=f"{shipped.housekeeper_metrics_interval:g}",
    )
    members.start()
    try:
        leader = wait_until(members.leader, "one leads")
        leader.kill()
        began = time.monotonic()
        wait_until(members.leader, "the other leads")
        judge_since("until another leads than the one that was killed", began, 10)
    finally:
        members.close()


def test_a_leader_asked_to_step_down_shows_nothing_from_then_on(system: System, cluster: Cluster) -> None:
    leader = wait_until(cluster.leader, "one leads")
    LockAdmin(system.scripts).step_down("a test", "to see another lead")
    assert not leader.leads()
    assert not shows_gauges(leader.scrape())
    following = wait_until(cluster.leader, "another leads")
    assert following is not leader


def test_a_leader_whose_lock_is_taken_away_stops_at_once(system: System, cluster: Cluster) -> None:
    leader = wait_until(cluster.leader, "one leads")
    desk = LockAdmin(system.scripts)
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
    assert system.redis.keys(keys.lock("*")) == []
    alone.close()


# --- A worker dies -----------------------------------------------------------------------------------------------


def test_a_killed_workers_task_runs_again_within_fifteen_seconds(system: System) -> None:
    plain = {"LEASE_TIME": "9", "HOUSEKEEPER_TIMEOUT_INTERVAL": "1", "HOUSEKEEPER_UNLOCK_INTERVAL": "0.25"}
    system.start_housekeeper(**plain, HOUSEKEEPER_DISTRIBUTED_EXECUTION_ENABLED="true")
    first = system.start_worker(**plain, WORKER_EXECUTORS="1")
    task_id = system.submit("long-at-first", "{}")
    wait_until(lambda: system.records.state(task_id) is TaskState.RUNNING, "it runs")
    first.kill()
    first.wait()
    died = time.monotonic()
    system.start_worker(**plain, WORKER_EXECUTORS="2")
    wait_until(lambda: system.records.get(task_id).summary.attempt == 2, "it runs again")
    judge_since("until a task of a killed worker ran again", died, 15)
    assert system.ended(task_id).summary.state is TaskState.COMPLETED
