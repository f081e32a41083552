"""The master goes away under load: nobody hangs, everybody finds the new one, and what Redis kept ends."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

import pytest
from redis import Redis

from firmq.shared.config.settings import load
from firmq.shared.domain.task import TaskState
from firmq.shared.errors import StoreRefused, StoreUnavailable, TaskNotFound
from firmq.shared.redis.client import connect, translated
from tests.integration.redis.load import Callers, Told, get, start_gateway
from tests.integration.redis.watched import SERVICE, Watched, watched_redis
from tests.support.harness import System, free_port, running_system, wait_until

HANGS = 5.0
"""Seconds from which a caller would say that the gateway hangs; it has 3 s by itself, and this machine other work."""
RESUMES = 15.0
UNREPLICATED = 1.5
"""Seconds before the end of a master whose writes may not have reached its replica: Redis copies afterwards."""

UNTOLD = 5.0
HEARD_WITHIN = 0.5
"""Seconds for which an old master may go on taking what is thrown away; 0.1 and what a busy machine adds."""
LONG = pytest.mark.skipif(os.environ.get("TEST_LONG") != "1", reason="takes a while: TEST_LONG=1 runs it")

Removal = Callable[[Watched], None]


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[Watched]:
    with watched_redis(tmp_path / "redis") as running:
        yield running


def killed(watched: Watched) -> None:
    watched.master.kill()


def frozen(watched: Watched) -> None:
    """It hangs until another rules, and wakes believing that it is still the master."""
    master = watched.master
    assert master.pid
    os.kill(master.pid, signal.SIGSTOP)

    def thaw() -> None:
        watched.await_promotion(master)
        assert master.pid
        os.kill(master.pid, signal.SIGCONT)

    threading.Thread(target=thaw, daemon=True).start()


def demoted(watched: Watched) -> None:
    """An operator asks for the change; the old master lives on as a replica."""
    watched.ask("FAILOVER", SERVICE)


@pytest.mark.parametrize("removal", [killed, demoted], ids=lambda each: each.__name__)
def test_a_failover_under_load_completes_every_kept_task(watched: Watched, tmp_path: Path, removal: Removal) -> None:
    gone_at, accepted, lost = change_master_under_load(watched, tmp_path, removal)
    # Redis copies to its replica afterwards: what it had no time for is gone with the master. And one that was replaced
    # by hand goes on taking tasks until it is told.
    assert all(gone_at - UNREPLICATED < each.at < gone_at + UNTOLD for each in lost)
    assert len(lost) < len(accepted)
    if removal is demoted:
        assert not lost or lost[-1].at - lost[0].at < HEARD_WITHIN, f"{len(lost)} of {len(accepted)} are lost"


# One that wakes up may find a replica that has not heard of the change; if all must have it, nothing is taken then.
@pytest.mark.parametrize(
    ("removal", "copies"),
    [(frozen, "2"), pytest.param(demoted, "2", marks=LONG), pytest.param(killed, "1", marks=LONG)],
    ids=lambda each: getattr(each, "__name__", each),
)
def test_a_lost_master_loses_no_replicated_task(tmp_path: Path, removal: Removal, copies: str) -> None:
    with watched_redis(tmp_path / "redis", replicas=2) as watched:
        _, accepted, lost = change_master_under_load(watched, tmp_path, removal, SUBMIT_REPLICAS=copies)
        assert accepted
        assert not lost


def change_master_under_load(
    watched: Watched, tmp_path: Path, removal: Removal, **gateway: str
) -> tuple[float, list[Told], list[Told]]:
    """When the master went, what was accepted before and after, and what of it Redis has lost."""
    before, port, board = watched.master, free_port(), free_port()
    client = connect(load(watched.environment).store_url, timeout=5)
    with client, running_system(client, watched.url, tmp_path, **watched.environment) as system:
        staff = [
            system.start("worker", WORKER_EXECUTORS="2"),
            system.start("worker", WORKER_EXECUTORS="2"),
            system.start_housekeeper(),
        ]
        system.start("dashboard", DASHBOARD_PORT=str(board))
        start_gateway(system, port, **{"REDIS_TIMEOUT": "0.9", **gateway})
        wait_until(lambda: len(system.workers.all()) == 2, "the workers are there", 60)
        with Callers(port, {"type": "slowly", "data": {"seconds": 0.01}}) as callers:
            wait_until(lambda: len(callers.accepted) > 100, f"the load runs\n{system.logs()}")
            later = system.submit("noop", delay=timedelta(seconds=4))
            # Unlike a gateway with SUBMIT_REPLICAS, nobody has waited for that.
            replicas = len(watched.servers) - 1
            wait_until(lambda: client.wait(replicas, 1000) == replicas, "the replicas have it")
            gone_at = time.monotonic()
            removal(watched)
            watched.await_promotion(before)
            promoted_at = time.monotonic()
            wait_until(lambda: _ran_since(system, callers, promoted_at), "workers run what came after it", 30)
            resumed_after = time.monotonic() - promoted_at
            wait_until(lambda: sum(each.at > promoted_at for each in callers.accepted) > 100, "the load goes on")
        system.all_ended()
        slowest = max(each.seconds for each in callers.told)
        lost = [each for each in callers.accepted if _state(system, each.task_id) is None]
        print(
            f"\n{removal.__name__} {gateway}: promoted after {promoted_at - gone_at:.1f} s, work resumed "
            f"{resumed_after:.1f} s later, answers {dict(callers.statuses)}, slowest {slowest:.2f} s, lost {len(lost)}"
        )
        assert set(callers.statuses) <= {202, 503}, callers.statuses
        assert slowest < HANGS
        assert resumed_after < RESUMES
        assert {_state(system, each.task_id) for each in callers.accepted} <= {TaskState.COMPLETED, None}
        assert system.ended(later).summary.state is TaskState.COMPLETED
        assert all(each.poll() is None for each in staff)
        wait_until(lambda: get(board, "/")[0] == 200, "the dashboard shows its page again")
        return gone_at, callers.accepted, lost


def _ran_since(system: System, callers: Callers, moment: float) -> bool:
    newest = [each.task_id for each in callers.accepted[-300:] if each.at > moment]
    return any(_state(system, each) is TaskState.COMPLETED for each in newest)


def _state(system: System, task_id: str) -> TaskState | None:
    try:
        return system.records.state(task_id)
    except (TaskNotFound, StoreUnavailable):
        return None


def test_a_connection_to_a_demoted_master_is_dropped_and_the_master_looked_for_again(watched: Watched) -> None:
    with connect(load(watched.environment).store_url) as client, watched.direct(watched.master) as direct:
        client.set("before", 1)
        # By hand; sentinels that do it would close the connections of clients.
        direct.replicaof("127.0.0.1", str(watched.servers[1].port))
        with pytest.raises(StoreRefused, match="takes no writes"), translated():
            client.set("meanwhile", 1)
        direct.replicaof("NO", "ONE")
        assert client.set("after", 1)


def test_a_process_that_begins_during_a_change_of_master_leaves_the_old_one_alone(watched: Watched) -> None:
    """What the sentinels published before it listened, it has to ask for."""
    old = watched.servers[0].port
    demoted(watched)
    states = ("wait_promotion", "reconf_slaves", "update_config")
    wait_until(lambda: watched.about("failover-state") in states, "a replica is told to become the master")
    with connect(load(watched.environment).store_url) as client:
        try:
            with translated():
                served_by = client.config_get("port")["port"]
        except (StoreUnavailable, StoreRefused):
            return
    assert served_by != str(old)


def test_a_process_that_was_forked_off_follows_the_sentinels_as_well(watched: Watched) -> None:
    """As the gateway's do: what the old master goes on taking for ten seconds after a change by hand is lost."""
    with connect(load(watched.environment).store_url) as client:
        client.ping()
        child = os.fork()
        if child == 0:
            os._exit(_follows_the_change_of_master(client, watched.servers[1].port))
        time.sleep(1.5)  # it has learnt who is the master now
        demoted(watched)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0, "it never left the old master"


def _follows_the_change_of_master(client: Redis, port: int) -> int:
    end = time.monotonic() + 7
    while time.monotonic() < end:
        with suppress(StoreUnavailable, StoreRefused), translated():
            client.set("where", "here")
            if client.config_get("port")["port"] == str(port):
                return 0
        time.sleep(0.05)
    return 1


def test_silent_sentinels_are_passed_over_and_that_all_are_silent_is_said(watched: Watched) -> None:
    with connect(load(watched.environment).store_url) as client:
        for sentinel in watched.sentinels[:2]:
            sentinel.kill()
            sentinel.wait()
        assert client.ping()
        watched.sentinels[2].kill()
        watched.sentinels[2].wait()
        assert client.ping()
        client.connection_pool.disconnect()
        with pytest.raises(StoreUnavailable, match="no sentinel knows the master"), translated():
            client.ping()
