"""Processes and Redis die in the middle of 5,000 tasks: what was accepted ends, and the count is exact."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from redis import Redis

from firmq.shared.domain.task import Outcome, TaskState
from firmq.shared.local.embedded_redis import EmbeddedRedis
from tests.support import one_slot
from tests.support.figures import judge_since
from tests.support.harness import System, alive, free_port, running_system, scrape, wait_until
from tests.support.keys import keys

TASKS = 5000


def gate(system: System) -> Path:
    """The file that lets the tasks in the middle go."""
    return system.log_dir / "go"


def submit_load(system: System) -> list[str]:
    """5,000 tasks of several kinds; 100 of them fail permanently. Some in the middle hold their executors until the
    test opens a gate, so that it comes in time for a fault, however late: where one is held, others work on."""
    held = ("note-and-wait", json.dumps({"file": str(system.log_dir / "held"), "until": str(gate(system))}))
    kinds = [("noop", "null")] * (TASKS - 300) + [("slowly", '{"seconds": 0.02}')] * 200
    kinds[1500:3500:100] = [held] * 20
    ids = system.submit_many(kinds[: TASKS // 2])
    ids += system.submit_many([("fail", '{"message": "as asked"}')] * 100, retry={"max_retries": 1})
    return ids + system.submit_many(kinds[TASKS // 2 :])


def check_all_ended(system: System, ids: list[str], *, failed: int) -> None:
    """Every accepted task has exactly one final state, and no structure holds anything that is not running."""
    gate(system).touch()
    counts = system.all_ended(90)
    states = Counter(system.records.get(each).summary.state for each in ids)
    assert states == {TaskState.COMPLETED: TASKS - failed, TaskState.FAILED: failed}
    assert counts[TaskState.COMPLETED] == TASKS - failed
    assert counts[TaskState.FAILED] == failed
    assert system.redis.zcard(keys.LEASES) == 0
    assert system.redis.zcard(keys.rq_started("normal")) == 0
    assert system.redis.zcard(keys.rq_finished("normal")) == TASKS - failed
    assert system.redis.zcard(keys.rq_failed("normal")) == failed


def in_the_middle(system: System) -> None:
    """Waits until part of the load is done."""
    wait_until(lambda: 300 < system.records.counts()[TaskState.COMPLETED] < TASKS - 1000, "part of it is done")


def test_executors_are_killed_in_the_middle(system: System) -> None:
    worker = system.start_worker(WORKER_EXECUTORS="2")
    system.start_housekeeper()
    system.queues.pause("normal", "until all is submitted")
    ids = submit_load(system)
    system.queues.resume("normal")
    in_the_middle(system)
    for pid in system.executors(worker):
        os.kill(pid, signal.SIGKILL)
    check_all_ended(system, ids, failed=100)
    assert worker.poll() is None


def test_a_worker_is_killed_in_the_middle(system: System) -> None:
    first = system.start_worker(WORKER_EXECUTORS="2")
    system.start_worker(WORKER_EXECUTORS="2")
    system.start_housekeeper()
    system.queues.pause("normal", "until all is submitted")
    ids = submit_load(system)
    system.queues.resume("normal")
    in_the_middle(system)
    executors = system.executors(first)
    killed = time.monotonic()
    first.kill()
    first.wait()
    wait_until(lambda: not any(map(alive, executors)), "its executors are gone")
    judge_since("until the executors of a killed worker are gone, before its leases end", killed, 3)
    check_all_ended(system, ids, failed=100)


def test_everything_killed_and_restarted_loses_no_task(system: System) -> None:
    processes = [system.start_worker(WORKER_EXECUTORS="2"), system.start_housekeeper()]
    system.queues.pause("normal", "until all is submitted")
    ids = submit_load(system)
    system.queues.resume("normal")
    in_the_middle(system)
    for process in processes:
        process.kill()
        process.wait()
    system.start_worker(WORKER_EXECUTORS="2")
    system.start_housekeeper()
    check_all_ended(system, ids, failed=100)


@pytest.fixture
def own_redis(tmp_path: Path) -> Iterator[EmbeddedRedis]:
    """A server that this test may kill, with its append-only file."""
    with one_slot.own_server(tmp_path / "redis") as server:
        yield server


@pytest.mark.parametrize("how", ["kill", "stop"])
def test_a_restart_of_redis_loses_no_task(own_redis: EmbeddedRedis, tmp_path: Path, how: str) -> None:
    with (
        one_slot.client_of(own_redis) as client,
        running_system(client, one_slot.url_of(own_redis), tmp_path) as system,
    ):
        system.start_worker(WORKER_EXECUTORS="2")
        system.start_housekeeper()
        system.queues.pause("normal", "until all is submitted")
        ids = submit_load(system)
        system.queues.resume("normal")
        in_the_middle(system)
        getattr(own_redis, how)()
        own_redis.start()
        check_all_ended(system, ids, failed=100)


def test_an_idle_worker_ends_at_once_also_while_redis_is_away(own_redis: EmbeddedRedis, tmp_path: Path) -> None:
    with (
        one_slot.client_of(own_redis) as client,
        running_system(client, one_slot.url_of(own_redis), tmp_path) as system,
    ):
        worker = system.start_worker(DRAIN_GRACE="60", WORKER_EXECUTORS="2")
        system.ended(system.submit("noop"))
        own_redis.kill()
        worker.terminate()
        assert worker.wait(30) == 0
        own_redis.start()


@pytest.mark.parametrize(("neighbour", "count"), [(("noop", "null"), 50), (("slowly", '{"seconds": 0.3}'), 2)])
def test_a_task_that_kills_its_worker_is_quarantined_and_its_neighbours_complete(
    system: System, neighbour: tuple[str, str], count: int
) -> None:
    def keep_a_worker() -> subprocess.Popen[bytes]:
        # On a machine that lets nobody run for a second, a shorter lease would charge those who did nothing.
        return system.start("worker", LEASE_TIME="3", MAX_CRASHES="2", WORKER_EXECUTORS="2")

    worker = keep_a_worker()
    system.start_housekeeper(MAX_CRASHES="2")
    honest = system.submit_many([neighbour] * count)
    poison = system.submit("crash", '{"how": "worker"}')
    honest += system.submit_many([neighbour] * count)

    def over(worker: subprocess.Popen[bytes]) -> str | None:
        return "ended" if system.records.state(poison).ended else "died" if worker.poll() is not None else None

    while wait_until(partial(over, worker), "the poison acts") != "ended":
        worker = keep_a_worker()
    task = system.ended(poison)
    assert task.summary.state is TaskState.FAILED
    assert task.summary.error is not None
    assert task.summary.error.type == "PoisonTask"
    system.all_ended()
    neighbours = [system.records.get(each) for each in honest]
    assert {each.summary.state for each in neighbours} == {TaskState.COMPLETED}
    assert max(each.summary.crashes for each in neighbours) <= 1


def test_a_frozen_worker_cannot_write_after_its_lease_ended(system: System, tmp_path: Path) -> None:
    ran, ports = tmp_path / "ran", (free_port(), free_port())
    frozen = system.start_worker(LEASE_TIME="3", WORKER_EXECUTORS="1", WORKER_METRICS_PORT=str(ports[0]))
    data = {"file": str(ran), "until": str(tmp_path / "until")}
    task_id = system.submit("note-and-wait", json.dumps(data))
    wait_until(ran.exists, "it runs")
    executors = system.executors(frozen)
    for pid in (frozen.pid, *executors):
        os.kill(pid, signal.SIGSTOP)
    system.start_housekeeper()
    other = system.start_worker(LEASE_TIME="30", WORKER_EXECUTORS="1", WORKER_METRICS_PORT=str(ports[1]))
    wait_until(lambda: len(ran.read_text().splitlines()) == 2, "the other worker runs it")
    (tmp_path / "until").touch()
    first = system.ended(task_id)
    assert first.summary.state is TaskState.COMPLETED
    assert [attempt.outcome for attempt in first.attempts] == [Outcome.LOST, Outcome.COMPLETED]
    for pid in (*executors, frozen.pid):
        os.kill(pid, signal.SIGCONT)
    wait_until(lambda: "lease lost" in system.logs(), "the late report is refused")
    assert system.records.get(task_id) == first
    completed = "task_completions_total", (("status", "completed"), ("type", "note-and-wait"))
    assert [scrape(port, 60)[completed] for port in ports] == [0, 1], "one task is counted once"
    assert scrape(ports[0], 60)["firmq_leases_lost_total", ()] == 1
    assert other.poll() is None
    assert frozen.poll() is None


def stopped(redis: EmbeddedRedis, seconds: float) -> None:
    assert redis.pid
    os.kill(redis.pid, signal.SIGSTOP)
    time.sleep(seconds)
    os.kill(redis.pid, signal.SIGCONT)


def away(redis: EmbeddedRedis, seconds: float) -> None:
    redis.kill()
    time.sleep(seconds)
    redis.start()


@pytest.mark.parametrize("outage", [stopped, away], ids=lambda each: each.__name__)
def test_an_outage_of_redis_is_charged_to_no_task(
    own_redis: EmbeddedRedis, tmp_path: Path, outage: Callable[[EmbeddedRedis, float], None]
) -> None:
    with (
        one_slot.client_of(own_redis) as client,
        running_system(client, one_slot.url_of(own_redis), tmp_path) as system,
    ):
        worker = system.start_worker(WORKER_EXECUTORS="4")
        system.start_housekeeper()
        data = json.dumps({"file": str(tmp_path / "ran"), "until": str(tmp_path / "until")})
        ids = system.submit_many([("note-and-wait", data)] * 4)
        for _ in range(3):
            wait_until(lambda: client.zcount(keys.LEASES, *soon(client)) == 4, "all run, and were noted to have begun")
            outage(own_redis, 4.5)
        (tmp_path / "until").touch()
        for each in ids:
            done = system.ended(each)
            assert done.summary.state is TaskState.COMPLETED
            assert done.summary.crashes == 0
            assert Outcome.LOST not in [attempt.outcome for attempt in done.attempts]
        assert "worker lost" not in system.logs()
        assert worker.poll() is None


def test_a_worker_shows_itself_at_once_when_redis_is_back(own_redis: EmbeddedRedis, tmp_path: Path) -> None:
    with (
        one_slot.client_of(own_redis) as client,
        running_system(client, one_slot.url_of(own_redis), tmp_path) as system,
    ):
        system.start_worker(LEASE_TIME="3", WORKER_EXECUTORS="2")

        def beat() -> float:
            [(_, at)] = client.zrange(keys.WORKERS, 0, -1, withscores=True)
            return float(at)

        first = beat()
        second = wait_until(lambda: now if (now := beat()) > first else 0, "it beats as an idle one, every 5 s")
        away(own_redis, 5.7)
        wait_until(lambda: beat() > second, "it beats before a lease could end that began when Redis was back", 3)


def soon(client: Redis) -> tuple[float, float]:
    """Ends of leases that were extended half a second ago or longer, and hold for two seconds more."""
    seconds, us = client.time()
    now = seconds * 1_000_000 + us
    return now + 2_000_000, now + 2_500_000


def test_suspects_that_wait_do_not_keep_a_worker_from_letting_go_of_what_runs(
    own_redis: EmbeddedRedis, tmp_path: Path
) -> None:
    with (
        one_slot.client_of(own_redis) as client,
        running_system(client, one_slot.url_of(own_redis), tmp_path) as system,
    ):
        worker = system.start_worker(LEASE_TIME="3", WORKER_EXECUTORS="2")
        for each in system.submit_many([("noop", "null")] * 400):
            system.ended(each)  # many fast ones teach it to claim ahead
        task_id = system.submit("slowly", '{"seconds": 60}')
        wait_until(lambda: system.records.state(task_id) is TaskState.RUNNING, "it runs")
        executors = system.executors(worker)
        system.queues.pause("normal", "so that all of them are claimed together")
        suspects = system.submit_many([("slowly", '{"seconds": 0.05}')] * 100)
        for each in suspects:
            client.hset(keys.rq_job(each), "losses", 1)  # their worker died
        system.queues.resume("normal")
        system.ended(suspects[0])
        assert own_redis.pid is not None
        os.kill(own_redis.pid, signal.SIGSTOP)
        try:
            wait_until(lambda: not all(map(alive, executors)), "it was stopped before its lease could end", 5)
        finally:
            os.kill(own_redis.pid, signal.SIGCONT)


def test_tickets_delivered_ten_times_run_once(system: System, tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    ids = system.submit_many([("note", json.dumps({"file": str(ran)}))] * 50)
    for _ in range(9):
        system.redis.rpush(keys.rq_queue("normal"), *ids)
    system.start_worker(WORKER_EXECUTORS="2")
    system.all_ended()
    assert len(ran.read_text().splitlines()) == 50


def test_a_queue_list_deleted_by_hand_is_rebuilt_and_every_task_runs_once(system: System, tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    ids = system.submit_many([("note", json.dumps({"file": str(ran)}))] * 300)
    system.redis.delete(keys.rq_queue("normal"))
    system.start_worker(WORKER_EXECUTORS="2")
    system.start_housekeeper()
    system.all_ended()
    lines = ran.read_text().splitlines()
    assert sorted(line.split()[0] for line in lines) == sorted(ids)


def test_scripts_flushed_from_redis_are_taught_again(system: System) -> None:
    system.start_worker(WORKER_EXECUTORS="2")
    system.redis.script_flush()
    assert system.ended(system.submit("noop")).summary.state is TaskState.COMPLETED


def test_corrupt_records_are_set_aside_and_the_queue_continues(system: System) -> None:
    ids = system.submit_many([("noop", "null")] * 20)
    system.redis.hdel(keys.rq_job(ids[3]), "data")
    system.redis.hset(keys.rq_job(ids[5]), "data", b"\x80\x04not a call")
    system.redis.hset(keys.rq_job(ids[7]), mapping={"attempt": "many", "time_limit": "soon", "retry": "{", "meta": "["})
    system.redis.delete(keys.rq_job(ids[9]))
    system.redis.set(keys.rq_job(ids[11]), "a string")
    system.redis.hset(keys.rq_job(ids[13]), "description", b"\xff\xfe")
    worker = system.start_worker(MAX_RETRIES="0", WORKER_EXECUTORS="2")
    damaged = {ids[at] for at in (3, 5, 7, 9, 11, 13)}
    for each in ids:
        if each not in damaged:
            assert system.ended(each).summary.state is TaskState.COMPLETED
    wait_until(lambda: system.records.counts()[TaskState.PENDING] == 0, "nothing waits")
    assert system.records.get(ids[3]).summary.state is TaskState.FAILED
    assert system.ended(ids[5]).summary.error is not None
    assert worker.poll() is None
    shown = system.dead_letters.page(limit=50)
    assert {item.id for item in shown.items} >= {ids[3], ids[5], ids[11]}


def test_a_full_redis_still_takes_outcomes(own_redis: EmbeddedRedis, tmp_path: Path) -> None:
    with (
        one_slot.client_of(own_redis) as client,
        running_system(client, one_slot.url_of(own_redis), tmp_path) as system,
    ):
        worker = system.start_worker(WORKER_EXECUTORS="2")
        ids = system.submit_many([("slowly", '{"seconds": 0.3}')] * 8)
        client.config_set("maxmemory", "1mb")
        for each in ids:
            assert system.ended(each).summary.state is TaskState.COMPLETED
        assert {len(system.records.get(each).attempts) for each in ids} == {1}
        assert worker.poll() is None
        client.config_set("maxmemory", "0")
