"""The way back: after our workers have stopped, RQ's own worker runs all that waits."""

from __future__ import annotations

import base64
import os
import pickle
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from redis import Redis
from rq import Callback, Queue, SimpleWorker
from rq.job import Dependency, JobStatus
from rq.registry import ScheduledJobRegistry

from firmq.shared.local.embedded_redis import EmbeddedRedis
from firmq.shared.redis.client import text
from firmq.worker.features.rq import way_back
from firmq.worker.features.rq.adopter import Adopter
from firmq.worker.features.rq.job_end import RQJobEnd
from firmq.worker.features.rq.way_back import WayBack
from tests.labs.rq_jobs.laboratory import kill_all
from tests.support import rq_functions as shop
from tests.support.attempt_ends import ended, report
from tests.support.harness import ROOT, System, wait_until
from tests.support.keys import keys
from tests.support.rq_functions import ALLOWED
from tests.support.rq_versions import VERSIONS, environment
from tests.support.store import NULL, Store

ADOPTING = {"RQ_QUEUES": "imports", "RQ_ALLOW": ALLOWED, "RQ_PICKLE": "true"}


def queue(redis: Redis, name: str = "imports") -> Any:
    return Queue(name, connection=redis)


def adopter_on(store: Store) -> Adopter:
    return Adopter(store.scripts, {"imports": "normal"}, lambda: False)


def work(redis: Redis, *names: str) -> None:
    """RQ's own worker runs what waits."""
    worker: Any = SimpleWorker([queue(redis, each) for each in names or ("imports",)], connection=redis)
    worker.work(burst=True)


def statuses(*jobs: Any) -> list[str]:
    return [str(job.get_status().value) for job in jobs]


def test_what_waits_goes_back_in_its_order_and_started_jobs_first(store: Store) -> None:
    jobs = [queue(store.redis).enqueue(shop.add, 1, each) for each in range(4)]
    adopter_on(store).adopt()
    later = queue(store.redis).enqueue(shop.add, 1, 9)
    [_] = store.claim(1)
    jobs[0].set_status(JobStatus.STARTED)
    store.redis.zadd(keys.rq_executions(jobs[0].id), {"e1": 9e9})
    store.redis.zadd(keys.rq_started("imports"), {f"{jobs[0].id}:e1": 9e9})
    back = WayBack(store.scripts)
    assert back.run() == 1, "a worker may still run it"
    assert queue(store.redis).job_ids == [*(job.id for job in jobs[1:]), later.id]
    store.clock.advance(timedelta(minutes=1))
    assert back.run() == 0
    assert queue(store.redis).job_ids == [*(job.id for job in jobs), later.id]
    assert not store.redis.zcard(keys.rq_started("imports"))
    assert not store.redis.exists(keys.RQ_ADOPTED, keys.TASKS)
    assert back.done == {"waits": 4}
    work(store.redis)
    assert [job.return_value() for job in (*jobs, later)] == [1, 2, 3, 4, 10]


def test_dependents_of_a_finished_job_are_enqueued(store: Store) -> None:
    """The report wrote the end of the job; the task was to run again to enqueue its dependents."""
    parent = queue(store.redis).enqueue(shop.add, 1, 1)
    other = queue(store.redis).enqueue_in(timedelta(days=3650), shop.add, 1, 1)
    adopter_on(store).adopt()
    [task] = store.claim()
    child = queue(store.redis).enqueue(shop.parent_result, depends_on=parent, meta={"order": 7})
    grandchild = queue(store.redis).enqueue(shop.add, 1, 1, depends_on=[parent, other])
    said = base64.b64encode(pickle.dumps(2)).decode()
    end = RQJobEnd(1795500000000000, 1795500001500000, 500, "x1", registered=False, value=said).encode()
    report(store.scripts, ended(task, "t1", "completed", result=NULL, rq_job_end=end))
    assert statuses(parent, child, grandchild) == ["finished", "deferred", "deferred"]
    assert store.redis.hlen(keys.RQ_ADOPTED) == 1
    back = WayBack(store.scripts)
    assert back.run() == 0
    assert back.done == {"dependents": 1}
    assert statuses(parent, child, grandchild) == ["finished", "queued", "deferred"]
    assert child.get_meta(refresh=True) == {"order": 7}
    work(store.redis)
    assert (child.return_value(), statuses(grandchild)) == (2, ["deferred"])


def test_ends_that_no_worker_has_settled_are_settled_first(store: Store) -> None:
    job = queue(store.redis).enqueue(shop.add, 1, 1, on_failure=Callback(shop.failed))
    cancelled = queue(store.redis).enqueue(shop.add, 1, 1)
    child = queue(store.redis).enqueue(shop.add, 2, 2, depends_on=Dependency([job], allow_failure=True))
    adopter_on(store).adopt()
    [task] = store.claim(1)
    store.report(task, "failed")
    [other] = [text(each) for each in store.redis.hkeys(keys.RQ_ADOPTED) if text(each) != task]
    store.queues.cancel(other, "not needed")
    back = WayBack(store.scripts)
    assert back.run() == 0
    assert back.done == {"abandoned": 1}
    assert statuses(cancelled) == ["canceled"]
    work(store.redis)
    assert statuses(job, child) == ["failed", "finished"]
    [called] = store.redis.lrange(shop.own_key(job.id), 0, -1)
    assert text(called).startswith("failure AbandonedJobError")


def test_jobs_that_rq_has_elsewhere_are_left_there(store: Store) -> None:
    jobs = [queue(store.redis).enqueue(shop.add, 1, each) for each in range(5)]
    adopter_on(store).adopt()
    jobs[0].cancel()
    jobs[1].delete()
    jobs[2].set_status(JobStatus.SCHEDULED)
    jobs[3].set_status(JobStatus.FAILED)
    store.redis.hset(jobs[4].key, "enqueued_at", "2030-01-01T00:00:00.000000Z")
    before = store.redis.dump(jobs[4].key)
    assert WayBack(store.scripts).run() == 0
    assert queue(store.redis).job_ids == []
    assert store.redis.dump(jobs[4].key) == before
    assert not store.redis.exists(keys.RQ_ADOPTED)


def test_what_a_killed_rq_worker_had_taken_goes_back_unless_another_serves_the_queue(store: Store) -> None:
    jobs = [queue(store.redis, name).enqueue(shop.add, 1, 1) for name in ("imports", "mail")]
    for job in jobs:
        store.redis.lmove(keys.rq_queue(job.origin), keys.rq_queue(f"{job.origin}:intermediate"), "LEFT", "RIGHT")
    worker: Any = SimpleWorker([queue(store.redis, "mail")], connection=store.redis)
    worker.register_birth()
    WayBack(store.scripts).unstick()
    assert (queue(store.redis).job_ids, queue(store.redis, "mail").job_ids) == ([jobs[0].id], [])
    assert not store.redis.exists(keys.rq_queue("imports:intermediate"))
    worker.register_death()
    WayBack(store.scripts).unstick()
    assert queue(store.redis, "mail").job_ids == [jobs[1].id]


def test_it_refuses_while_a_worker_runs_and_says_what_remains(
    system: System, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("REDIS_URL", system.url)
    monkeypatch.setenv("RQ_KEY_PREFIX", f"{keys.prefix}rq")
    monkeypatch.setattr(way_back, "WAIT", 0.0)
    process = system.start_worker(**ADOPTING)
    [worker] = system.workers.all()
    assert way_back.main() == 1
    says = f"firmq rq-return: worker {worker.name} runs jobs of RQ programs: stop it first (SIGTERM)\n"
    assert capsys.readouterr().err == says
    process.terminate()
    process.wait(60)
    system.redis.zadd(keys.foreign("high"), {"theirs": 1})
    assert way_back.main() == 1
    assert "1 job is parked in queue high of Firmq: firmq queues move-foreign high" in capsys.readouterr().err
    system.redis.delete(keys.foreign("high"))
    assert way_back.main() == 0
    assert "nothing is left" in capsys.readouterr().out


@pytest.mark.parametrize("version", VERSIONS)
def test_after_a_kill_rqs_worker_runs_everything(
    system: System, redis_server: EmbeddedRedis, version: str, tmp_path: Path
) -> None:
    worker = system.start_worker(**ADOPTING, **environment(version), WORKER_EXECUTORS="1")
    slow = queue(system.redis).enqueue(shop.note_slowly_at_first, shop.own_key("slow"))
    child = queue(system.redis).enqueue(shop.add, 2, 2, depends_on=slow)
    jobs = [queue(system.redis).enqueue(shop.add, 1, each) for each in range(50)]
    scheduled = queue(system.redis).enqueue_in(timedelta(hours=1), shop.add, 3, 3)
    taken = queue(system.redis, "mail").enqueue(shop.add, 4, 4)
    system.redis.lmove(keys.rq_queue("mail"), keys.rq_queue("mail:intermediate"), "LEFT", "RIGHT")
    wait_until(lambda: system.redis.exists(shop.own_key("slow")), "the first one runs")
    wait_until(lambda: system.redis.hlen(keys.RQ_ADOPTED) > 1, "others are adopted")
    kill_all(worker)
    back = subprocess.run(
        [sys.executable, "-m", "firmq", "rq-return"], env={**os.environ, "REDIS_URL": system.url}, cwd=ROOT,
        capture_output=True, text=True, timeout=90, check=False,
    )  # fmt: skip
    assert back.returncode == 0, back.stdout + back.stderr
    assert "jobs are back in front of RQ's queues" in back.stdout
    assert queue(system.redis).job_ids[0] == slow.id
    scheduled_jobs: Any = ScheduledJobRegistry
    scheduled_jobs(queue=queue(system.redis)).schedule(
        scheduled, datetime.now(UTC) - timedelta(seconds=1)
    )  # RQ looks at them once in a burst
    command = [sys.executable, "-m", "rq.cli", "worker", "-w", "rq.SimpleWorker", "--burst", "--with-scheduler"]
    subprocess.run(
        [*command, "--url", redis_server.url, "imports", "mail"], env={**os.environ, **environment(version)}, cwd=ROOT,
        capture_output=True, timeout=90, check=True,
    )  # fmt: skip
    assert [job.return_value() for job in (child, *jobs, scheduled, taken)] == [
        4,
        *(1 + each for each in range(50)),
        6,
        8,
    ]
    assert statuses(slow) == ["finished"]
    assert system.redis.llen(shop.own_key("slow")) == 2
