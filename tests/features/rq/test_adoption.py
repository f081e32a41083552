"""How jobs of RQ programs become tasks, and what happens to those that are not run by RQ's own code to the end."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from redis import Redis
from rq import Queue
from rq.job import Job, JobStatus
from rq.registry import CanceledJobRegistry, FailedJobRegistry, ScheduledJobRegistry, StartedJobRegistry
from rq.webhook import Webhook

from firmq.shared.domain.clock import instant_us
from firmq.shared.domain.task import RQ_JOB_TYPE, TaskState
from firmq.shared.errors import IllegalTransition
from firmq.shared.local.embedded_redis import EmbeddedRedis
from firmq.shared.redis.client import text
from firmq.worker.features.rq import adopter, handler
from firmq.worker.features.rq.adopter import Adopter
from firmq.worker.features.rq.allowed import Allowed
from firmq.worker.features.rq.arrivals import Arrivals
from firmq.worker.features.rq.started_jobs import StartedJobs
from firmq.worker.features.rq.terms import Terms
from firmq.worker.handlers.context import CurrentTask
from tests.support import rq_functions as shop
from tests.support.harness import ROOT, System, wait_until
from tests.support.keys import keys
from tests.support.rq_functions import ALLOWED
from tests.support.store import Store

ADOPTING = {"RQ_QUEUES": "imports,mail", "RQ_ALLOW": ALLOWED, "RQ_PICKLE": "true"}


def adopter_on(store: Store, **queues: str) -> Adopter:
    return Adopter(store.scripts, queues or {"imports": "normal"}, lambda: False)


def tasks(redis: Redis) -> list[str]:
    return [text(each) for each in redis.zrange(keys.tasks_of_type(RQ_JOB_TYPE), 0, -1)]


def adopted(redis: Redis) -> dict[str, str]:
    """The jobs of adopted tasks."""
    return {text(task): text(value).split()[1] for task, value in redis.hgetall(keys.RQ_ADOPTED).items()}


def queue(redis: Redis, name: str = "imports") -> Any:
    return Queue(name, connection=redis)


class Planted:
    """A pickle that makes a file when it is loaded."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def __reduce__(self) -> Any:
        return os.system, (f"touch {self.file}",)


def scheduled(redis: Redis) -> Any:
    registry: Any = ScheduledJobRegistry
    return registry(queue=queue(redis))


# --- with the scripts alone ---


def test_adoption_leaves_records_and_other_queues_byte_for_byte_unchanged(store: Store) -> None:
    jobs = [queue(store.redis).enqueue(shop.add, 1, each) for each in range(3)]
    others = [queue(store.redis, "others").enqueue(shop.add, 1, 1).id]
    before = {job.id: store.redis.dump(job.key) for job in jobs}
    other_keys = [keys.rq_job(others[0]), keys.rq_queue("others")]
    unchanged = {key: store.redis.dump(key) for key in other_keys}
    assert adopter_on(store).adopt() == 3
    assert {job.id: store.redis.dump(job.key) for job in jobs} == before
    assert {key: store.redis.dump(key) for key in other_keys} == unchanged
    assert store.redis.llen(keys.rq_queue("imports")) == 0
    assert [adopted(store.redis)[each] for each in store.claim(5)] == [job.id for job in jobs]


def test_queues_are_adopted_in_their_order_and_within_the_bound(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adopter, "MOST_OF_SEVERAL", 3)
    mail = [queue(store.redis, "mail").enqueue(shop.add, 1, 1) for _ in range(2)]
    imports = [queue(store.redis).enqueue(shop.add, 1, 1) for _ in range(2)]
    adopting = adopter_on(store, imports="normal", mail="normal")
    assert [adopting.adopt(), adopting.adopt(), adopting.adopt()] == [2, 1, 0]
    assert sorted(adopted(store.redis).values()) == sorted([*(job.id for job in imports), mail[0].id])
    assert queue(store.redis, "mail").job_ids == [mail[1].id]
    store.report(store.claim()[0], "completed")
    adopting.settle()
    assert adopting.adopt() == 1


def test_of_several_queues_only_what_starts_soon_is_adopted_ahead(store: Store) -> None:
    mail = [queue(store.redis, "mail").enqueue(shop.add, 1, 1).id for _ in range(200)]
    queues = {"imports": "normal", "mail": "normal"}
    adopting = Adopter(store.scripts, queues, lambda: False, executors=2)
    assert [adopting.adopt(), adopting.adopt()] == [2, 0]
    assert len(store.claim(2)) == 2
    urgent = queue(store.redis).enqueue(shop.add, 1, 1).id
    assert [adopting.adopt(), adopting.adopt()] == [1, 2], "the first queue, then the other one"
    assert [adopted(store.redis)[each] for each in store.claim(9, "t2")] == [urgent, *mail[2:4]]
    claimed = []
    for at in range(6):
        adopting.adopt()
        claimed.append(len(store.claim(200, f"again-{at}")))
    assert claimed == [6, 12, 20, 40, 80, 37], "more and more while they start at once"


def test_a_burst_does_not_end_while_jobs_are_left_that_it_may_not_adopt_yet(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("imports", "mail") * 2:
        queue(store.redis, name).enqueue(shop.add, 1, 1)
    queues, terms = {"imports": "normal", "mail": "low"}, Terms(burst=True)
    adopting = Adopter(store.scripts, queues, lambda: False, terms, executors=1)
    assert [adopting.adopt(), adopting.adopt()] == [1, 0], "one executor"
    store.report(store.claim()[0], "completed")
    adopting.settle()
    assert not adopting._is_done(0)
    monkeypatch.setattr(adopter, "MOST_ADOPTED", 1)
    assert Adopter(store.scripts, {"imports": "normal"}, lambda: False).adopt() == 1
    other = Adopter(store.scripts, {"mail": "low"}, lambda: False, terms)
    assert other.adopt() == 0, "others adopted as many as there may be"
    assert not other._is_done(0)


def test_foreign_jobs_in_a_queue_of_ours_are_adopted_and_its_tasks_stay(store: Store) -> None:
    parked = queue(store.redis, "normal").enqueue(shop.add, 1, 1)
    store.claim()
    assert store.redis.zscore(keys.foreign("normal"), parked.id)
    [ours] = store.submit()
    behind = queue(store.redis, "normal").enqueue(shop.add, 1, 1)
    assert adopter_on(store, normal="normal").adopt() == 2
    assert store.redis.zcard(keys.foreign("normal")) == 0
    claimed = store.claim(5)
    assert claimed[0] == ours
    assert len(claimed) == 3
    assert parked.get_status() == behind.get_status() == JobStatus.QUEUED


def test_due_jobs_are_enqueued_once_and_never_beside_a_scheduler_of_rq(store: Store) -> None:
    job = queue(store.redis).enqueue_in(timedelta(seconds=30), shop.add, 1, 1)
    due = scheduled(store.redis).get_scheduled_time(job)
    adopting = adopter_on(store)
    store.clock.now_us = instant_us(due) - 2_000_000
    assert adopting.adopt() == 0
    store.clock.advance(timedelta(seconds=4))
    store.redis.set(keys.rq_scheduler_lock("imports"), "4711", ex=60)
    assert adopting.adopt() == 0
    store.redis.delete(keys.rq_scheduler_lock("imports"))
    assert [adopting.adopt(), adopting.adopt()] == [1, 0]
    assert job.get_status() == JobStatus.QUEUED
    assert job.id not in scheduled(store.redis).get_job_ids(cleanup=False)


def test_a_job_that_a_list_names_twice_is_adopted_once(store: Store) -> None:
    jobs = [queue(store.redis).enqueue(shop.add, 1, each) for each in range(2)]
    again = store.redis.rpush
    again(keys.rq_queue("imports"), jobs[0].id)
    adopting = adopter_on(store)
    assert adopting.adopt() == 2
    again(keys.rq_queue("imports"), jobs[1].id)
    assert adopting.adopt() == 0
    assert sorted(adopted(store.redis).values()) == sorted(job.id for job in jobs)
    assert store.redis.llen(keys.rq_queue("imports")) == 0
    queue(store.redis).enqueue_job(jobs[0])
    assert adopting.adopt() == 1, "it was enqueued again"


def test_rq_suspend_stops_the_adoption(store: Store) -> None:
    queue(store.redis).enqueue(shop.add, 1, 1)
    store.redis.set(keys.RQ_SUSPENDED, 1)
    assert adopter_on(store).adopt() == 0
    store.redis.delete(keys.RQ_SUSPENDED)
    assert adopter_on(store).adopt() == 1


def test_what_did_not_start_goes_back_in_front_in_its_order(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = [queue(store.redis).enqueue(shop.add, 1, each) for each in range(4)]
    adopting = adopter_on(store)
    adopting.adopt()
    later = queue(store.redis).enqueue(shop.add, 1, 9)
    [started] = store.claim()
    monkeypatch.setattr(adopter, "AT_ONCE", 2)
    adopting.give_back()
    assert queue(store.redis).job_ids == [*(job.id for job in jobs[1:]), later.id]
    assert tasks(store.redis) == [started]
    assert store.claim(5, token="t2") == []


def test_a_cancelled_task_cancels_its_job(store: Store) -> None:
    job = queue(store.redis).enqueue(shop.add, 1, 1)
    adopting = adopter_on(store)
    adopting.adopt()
    store.queues.cancel(tasks(store.redis)[0], "not needed")
    adopting.settle()
    assert job.get_status() == JobStatus.CANCELED
    assert job.id in CanceledJobRegistry(queue=queue(store.redis)).get_job_ids(cleanup=False)
    assert store.redis.hlen(keys.RQ_ADOPTED) == 0


def test_the_cancelled_task_of_a_job_is_not_restored(store: Store) -> None:
    queue(store.redis).enqueue(shop.add, 1, 1)
    adopter_on(store).adopt()
    [task_id] = tasks(store.redis)
    store.queues.cancel(task_id, "not needed")
    with pytest.raises(IllegalTransition, match="tasks of RQ jobs"):
        store.queues.restore(task_id)
    assert store.claim() == []


@pytest.mark.parametrize(
    ("status", "then"),
    [
        (JobStatus.QUEUED, JobStatus.FAILED),
        (JobStatus.CREATED, JobStatus.FAILED),
        (JobStatus.DEFERRED, JobStatus.FAILED),
        (JobStatus.CANCELED, JobStatus.CANCELED),
        (JobStatus.FINISHED, JobStatus.FINISHED),
    ],
)
def test_a_job_whose_task_failed_is_failed_unless_its_program_has_decided(
    store: Store, status: JobStatus, then: JobStatus
) -> None:
    job = queue(store.redis).enqueue(shop.add, 1, 1)
    store.redis.hset(job.key, "status", status)
    adopting = adopter_on(store)
    adopting.adopt()
    [task_id] = store.claim()
    store.report(task_id, "failed")
    adopting.settle()
    assert job.get_status() == then
    assert (job.id in FailedJobRegistry(queue=queue(store.redis)).get_job_ids(cleanup=False)) == (
        then == JobStatus.FAILED
    )


def test_a_job_that_was_enqueued_again_is_not_failed_by_its_earlier_task(store: Store) -> None:
    job = queue(store.redis).enqueue(shop.add, 1, 1)
    adopting = adopter_on(store)
    adopting.adopt()
    [task_id] = store.claim()
    store.report(task_id, "failed")
    store.redis.hset(job.key, "enqueued_at", "2030-01-01T00:00:00.000000Z")
    adopting.settle()
    assert job.get_status() == JobStatus.QUEUED


def test_an_arrival_is_noticed_and_leaves_the_queue_as_it_was(store: Store) -> None:
    arrived = threading.Event()
    arrivals = Arrivals(store.redis, [keys.rq_queue("imports"), keys.rq_queue("mail")], arrived)
    arrivals.start()
    assert not arrived.wait(0.1)
    jobs = [queue(store.redis, "mail").enqueue(shop.add, 1, each) for each in range(3)]
    assert arrived.wait(10)
    assert queue(store.redis, "mail").job_ids == [job.id for job in jobs]
    arrivals.stop()


def test_a_job_that_follows_one_that_was_taken_is_noticed_without_a_pause(store: Store) -> None:
    paused: list[str] = []

    class Stopping(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            paused.extend(["pause"] if timeout else [])
            return super().wait(timeout)

    arrived, imports = threading.Event(), queue(store.redis)
    arrivals = Arrivals(store.redis, [imports.key], arrived)
    arrivals._stopping = Stopping()
    arrivals.start()
    for number in range(5):
        imports.enqueue(shop.add, 1, number)
        assert arrived.wait(10)
        arrived.clear()
        store.redis.delete(imports.key)
        arrivals.looked()
    assert not paused
    imports.enqueue(shop.add, 1, 5)
    for _ in range(3):  # one that stays, as in a queue that is suspended
        assert arrived.wait(10)
        arrived.clear()
        arrivals.looked()
    assert paused
    arrivals.stop()


# --- with real workers ---


def test_a_refused_job_is_a_dead_letter_and_was_never_loaded(system: System, tmp_path: Path) -> None:
    system.start_worker(**ADOPTING)
    file = tmp_path / "loaded"
    planted = queue(system.redis).enqueue("tests.support.rq_functions.add", Planted(file))
    outside = queue(system.redis).enqueue("os.getpid")
    for job, reason in (
        (planted, "posix.system does not match RQ_ALLOW"),
        (outside, "os.getpid does not match RQ_ALLOW"),
    ):
        wait_until(lambda job=job: job.get_status() == JobStatus.FAILED, "the job has failed")  # type: ignore[misc]
        latest = job.latest_result()
        assert latest is not None
        assert reason in str(latest.exc_string)
        assert job.id in FailedJobRegistry(queue=queue(system.redis)).get_job_ids()
    letters = [system.records.get(each) for each in tasks(system.redis)]
    assert [each.summary.state for each in letters] == [TaskState.FAILED] * 2
    assert not file.exists()


def test_pickled_jobs_are_refused_unless_allowed(system: System) -> None:
    system.start_worker(**{**ADOPTING, "RQ_PICKLE": "false"})
    job = queue(system.redis).enqueue(shop.add, 1, 2)
    wait_until(lambda: job.get_status() == JobStatus.FAILED, "the job has failed")
    assert "RQ_PICKLE is off" in str(job.latest_result().exc_string)


def test_rq_runs_what_waits_when_our_worker_has_stopped(system: System, redis_server: EmbeddedRedis) -> None:
    worker = system.start_worker(**ADOPTING)
    slow = queue(system.redis).enqueue(shop.sleep, 2)
    jobs = [queue(system.redis).enqueue(shop.add, 1, each) for each in range(100)]
    wait_until(lambda: slow.get_status() == JobStatus.STARTED, "the first one runs")
    worker.send_signal(signal.SIGTERM)
    worker.wait(60)
    assert slow.get_status() == JobStatus.FINISHED
    waiting = [job for job in jobs if job.get_status() == JobStatus.QUEUED]
    assert queue(system.redis).job_ids == [job.id for job in waiting]
    command = [sys.executable, "-m", "rq.cli", "worker", "-w", "rq.SimpleWorker", "--burst", "--url", redis_server.url]
    subprocess.run([*command, "imports"], cwd=ROOT, capture_output=True, timeout=60, check=True)
    assert [job.return_value() for job in jobs] == [1 + each for each in range(100)]


def test_no_job_is_lost_when_workers_and_redis_are_killed(system: System, redis_server: EmbeddedRedis) -> None:
    system.start_housekeeper()
    jobs = [
        queue(system.redis, name).enqueue(shop.note, shop.own_key(each), "x", job_timeout=60)
        for each, name in enumerate(("imports", "mail") * 60)
    ]
    for at in range(5):
        worker = system.start_worker(**ADOPTING, WORKER_EXECUTORS="2")
        done = at * 15 + 15
        wait_until(lambda done=done: _ended(system.redis) >= done, f"{done} have ended")  # type: ignore[misc]
        worker.kill()
        worker.wait()
        if at == 2:
            redis_server.kill()
            redis_server.start()
    system.start_worker(**ADOPTING, WORKER_EXECUTORS="2")
    for job in jobs:
        wait_until(lambda job=job: job.get_status() == JobStatus.FINISHED, "the job is finished")  # type: ignore[misc]
    assert all(system.redis.llen(shop.own_key(each)) >= 1 for each in range(len(jobs)))
    for name in ("imports", "mail"):
        wait_until(lambda name=name: not _started(system.redis, name), "no job counts as started")  # type: ignore[misc]
    wait_until(lambda: not system.redis.hlen(keys.RQ_ADOPTED), "all tasks are settled")


def _ended(redis: Redis) -> int:
    return int(redis.zcard(keys.rq_finished("imports")) + redis.zcard(keys.rq_finished("mail")))


def _started(redis: Redis, name: str) -> list[str]:
    return StartedJobRegistry(name, connection=redis).get_job_ids(cleanup=False)


def test_a_job_that_rq_deletes_when_it_ends_is_a_completed_task(system: System) -> None:
    system.start_worker(**ADOPTING)
    job = queue(system.redis).enqueue(shop.add, 1, 1, result_ttl=0)
    wait_until(lambda: not system.redis.exists(job.key), "the job is deleted")
    [task_id] = tasks(system.redis)
    assert system.ended(task_id).summary.state is TaskState.COMPLETED


def test_a_dead_letter_that_is_retried_runs_its_job_again(system: System) -> None:
    system.start_worker(**ADOPTING)
    job = queue(system.redis).enqueue(shop.fail_times, shop.own_key("times"), 1)
    wait_until(lambda: job.get_status() == JobStatus.FAILED, "it has failed")
    [task_id] = tasks(system.redis)
    assert system.ended(task_id).summary.state is TaskState.FAILED
    system.dead_letters.requeue(task_id)
    wait_until(lambda: job.get_status() == JobStatus.FINISHED, "it has ended well")
    assert job.id not in FailedJobRegistry(queue=queue(system.redis)).get_job_ids()
    assert Job.fetch(job.id, connection=system.redis).return_value() == "at last"


def test_webhooks_of_rq_are_not_sent(system: System) -> None:
    with socket.create_server(("127.0.0.1", 0)) as receiver:
        hook = Webhook(f"http://127.0.0.1:{receiver.getsockname()[1]}/", "finished", timeout=1)
        system.start_worker(**ADOPTING)
        job = queue(system.redis).enqueue(shop.add, 1, 2, webhooks=[hook])
        wait_until(lambda: tasks(system.redis), "it is adopted")
        assert system.ended(tasks(system.redis)[0]).summary.state is TaskState.COMPLETED
        assert job.return_value() == 3
        receiver.settimeout(0)
        with pytest.raises(BlockingIOError):
            receiver.accept()


def test_a_job_that_rq_put_back_for_later_does_not_run_at_once_as_well(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after a retry with an interval whose executor died before it reported."""
    job = queue(store.redis).enqueue(shop.note, shop.own_key("later"), "x")
    enqueued_at = text(store.redis.hget(job.key, "enqueued_at"))
    job.set_status(JobStatus.SCHEDULED)
    parts = handler.Parts(store.redis, Allowed(ALLOWED.split(","), pickles=True), StartedJobs(), 500)
    monkeypatch.setattr(handler, "_parts", lambda: parts)
    monkeypatch.setattr(handler, "current_task", lambda: CurrentTask(id="t", type="t", attempt=1, failures=0))
    skipped = handler.rq_job(job=job.id, queue="imports", enqueued_at=enqueued_at)
    assert skipped == {"job": job.id, "skipped": "the job is scheduled"}
