"""What becomes of a worker that dies without a word: silent, then lost, and on record with the reason for a week."""

from __future__ import annotations

import math
import signal
from datetime import timedelta

import pytest

from firmq.shared.redis.client import text
from firmq.shared.stores.workers import LOST_KEPT, LOST_MOST, Register, WorkerInfo, Workers, workers_lost
from tests.integration.dashboard.conftest import Browser
from tests.support.harness import System, free_port, scrape, wait_until
from tests.support.keys import keys

LEASE = timedelta(seconds=9)


@pytest.fixture
def workers(system: System) -> Workers:
    """The register as parts with the shipped length of leases read it."""
    system.environment["LEASE_TIME"] = "9"
    return Workers(system.redis, LEASE)


def _is_known(found: list[WorkerInfo], state: str) -> bool:
    return [each.state for each in found] == [state]


def test_a_killed_worker_is_silent_then_lost_with_the_reason(
    system: System, workers: Workers, browser: Browser
) -> None:
    port = free_port()
    worker = system.start_worker(WORKER_EXECUTORS="2")
    tasks = system.submit_many([("slowly", '{"seconds": 300}')] * 2)
    wait_until(lambda: [each.held for each in workers.all()] == [2], "it announces that it runs both")
    [name] = [each.name for each in workers.all()]
    worker.kill()

    patient = Workers(system.redis, timedelta(hours=1))

    def silent() -> Register | None:
        now = patient.look()
        return now if _is_known(now.live, "silent") else None

    seen = wait_until(silent, "it is silent")
    assert seen.live[0].reason.startswith("no heartbeat since 2")
    assert not seen.lost
    system.start_housekeeper(HOUSEKEEPER_METRICS_PORT=str(port))
    wait_until(lambda: _is_known(workers.look().lost, "lost"), "it is lost")
    wait_until(lambda: not system.redis.zscore(keys.WORKERS, name), "housekeeping has seen it")
    # Leases end one by one, and a lost worker may be seen in between.
    given = "; 2 tasks were given to other workers"
    wait_until(lambda: str(workers.look().lost[0].reason).endswith(given), "both tasks are free")
    now = workers.look()
    assert not now.live
    assert not now.lost[0].running
    assert system.redis.zrange(keys.LOST_WORKERS, 0, -1) == [name.encode()]
    assert system.redis.smembers(keys.RQ_WORKERS) == set()
    assert LOST_KEPT - timedelta(minutes=2) < timedelta(milliseconds=int(system.redis.pttl(keys.worker(name))))
    wait_until(lambda: scrape(port).get(("firmq_active_workers", ())) == 0, "the metrics count none")
    page = browser.text("/workers")
    assert "2 tasks were given to other workers" in page
    assert 's-lost">lost' in page
    assert "1 worker was lost in the last 10 minutes" in browser.text("/")
    assert all(system.records.get(each).summary.state == "pending" for each in tasks)
    assert f'"worker": "{name}"' in system.logs()


def test_a_worker_that_was_only_frozen_is_no_lost_one_any_more(system: System, workers: Workers) -> None:
    system.start_housekeeper()
    worker = system.start_worker()
    worker.send_signal(signal.SIGSTOP)
    wait_until(lambda: system.redis.zcard(keys.LOST_WORKERS) == 1, "it is lost")
    worker.send_signal(signal.SIGCONT)
    wait_until(lambda: _is_known(workers.look().live, "idle"), "it is back")
    assert not workers.look().lost


def test_a_worker_is_lost_without_a_housekeeper_too(system: System, workers: Workers) -> None:
    system.start_worker().kill()
    wait_until(lambda: _is_known(workers.look().lost, "lost"), "it is lost")
    assert workers.all() == []


def test_a_worker_that_ends_in_order_is_never_lost(system: System, workers: Workers) -> None:
    worker = system.start_worker()
    worker.terminate()
    worker.wait(90)
    now = workers.look()
    assert (now.live, now.lost, now.unreadable) == ([], [], [])
    assert not system.redis.keys(f"{keys.prefix}firmq:worker*")


def test_lost_workers_are_few_and_forgotten_after_a_week(system: System, workers: Workers) -> None:
    seconds, _ = map(int, system.redis.time())
    ages = {f"old-{number}": seconds - 8 * 86_400 for number in range(30)}
    ages |= {f"new-{number:03}": seconds - 1000 + number for number in range(150)}
    system.redis.zadd(keys.LOST_WORKERS, {name: at * 1_000_000 for name, at in ages.items()})
    system.redis.zadd(keys.REASSIGNED, dict.fromkeys(ages, 1))
    for name in ages:
        system.redis.set(keys.worker(name), "{}")
    workers.reap(["normal"])
    kept = {f"new-{number:03}" for number in range(150 - LOST_MOST, 150)}
    assert set(map(text, system.redis.zrange(keys.LOST_WORKERS, 0, -1))) == kept
    assert set(map(text, system.redis.zrange(keys.REASSIGNED, 0, -1))) == kept
    assert set(map(text, system.redis.keys(keys.worker("*")))) == set(map(keys.worker, kept))


def test_names_and_heartbeats_that_no_worker_writes_are_moved_like_any_other(
    system: System, workers: Workers, caplog: pytest.LogCaptureFixture
) -> None:
    strange = {b"never": float("-inf"), b"\xff\xfe": 1.5, b"before": -7.0}
    now, _ = map(int, system.redis.time())
    system.redis.zadd(keys.WORKERS, {**strange, b"lately": (now - 600) * 1_000_000 + 0.5})
    assert len(workers.reap(["normal"])) == 4
    assert system.redis.zcard(keys.WORKERS) == 0
    assert system.redis.zrange(keys.LOST_WORKERS, 0, -1) == [b"lately"], "the others are older than a week"
    told = [vars(record)["silent_seconds"] for record in caplog.records if record.message == "worker lost"]
    assert len(told) == 4
    assert all(map(math.isfinite, told)), "a log line is JSON"


def test_one_that_sent_a_heartbeat_meanwhile_stays(system: System) -> None:
    system.redis.zadd(keys.WORKERS, {"a": 2_000_000, "b": 1_000_000})
    moved = workers_lost(system.scripts, 10**18, LOST_MOST, ["normal"], [("a", 1_000_000), ("b", 1_000_000)])
    assert moved == ["b"]
    assert system.redis.zrange(keys.WORKERS, 0, -1) == [b"a"]
