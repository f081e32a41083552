"""Jobs whose end is written by the report of their task: what RQ sees of them is what its own worker writes."""

from __future__ import annotations

import base64
import json
import os
import pickle
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from redis import Redis
from redis.exceptions import ConnectionError
from rq import Callback, Queue, Repeat
from rq.job import Job, JobStatus
from rq.registry import FinishedJobRegistry, StartedJobRegistry
from rq.serializers import JSONSerializer
from rq.utils import now

from firmq.shared.local.embedded_redis import EmbeddedRedis
from firmq.worker.executors.recorder import Recorder
from firmq.worker.features.rq import handler
from firmq.worker.features.rq.adopter import Adopter
from firmq.worker.features.rq.allowed import Allowed
from firmq.worker.features.rq.job_end import WRITTEN_BY_RQ, RQJobEnd
from firmq.worker.features.rq.started_jobs import StartedJobs
from firmq.worker.handlers.context import CurrentTask, current
from tests.support import attempt_ends
from tests.support import rq_functions as shop
from tests.support.attempt_ends import claiming, ended
from tests.support.harness import ROOT, System, wait_until
from tests.support.keys import keys
from tests.support.rq_functions import ALLOWED
from tests.support.rq_versions import VERSIONS, environment
from tests.support.store import LEASE, NULL, Store

ADOPTING = {"RQ_QUEUES": "imports", "RQ_ALLOW": ALLOWED, "RQ_PICKLE": "true"}
NOWHERE: Any = Redis(port=1)
"""A connection that fails at its first use."""
LATER = {
    "started_at",
    "ended_at",
    "last_heartbeat",
    "worker_name",
    "created_at",
    "enqueued_at",
    "origin",
    "description",
}


def queue(redis: Redis, name: str = "imports") -> Any:
    return Queue(name, connection=redis)


def adopt(store: Store) -> None:
    Adopter(store.scripts, {"imports": "normal"}, lambda: False).adopt()


def claim(store: Store, token: str = "t1") -> list[Any]:
    """The row of the one task that waits."""
    reply = store.scripts.call("claim", *claiming("w", token, LEASE, 1, 1 << 20, "normal", 1))
    [row] = reply[3]
    return list(row)


def report(store: Store, task: bytes, end: bytes | str, token: str = "t1") -> int:
    [answer] = attempt_ends.report(store.scripts, ended(task, token, "completed", result=NULL, rq_job_end=end))
    return answer


def end_of(value: object = 3, kept: int = 500, execution: str = "x1") -> bytes:
    said = base64.b64encode(pickle.dumps(value)).decode()
    registered = execution.startswith("+")
    return RQJobEnd(1795500000000000, 1795500001500000, kept, execution.lstrip("+"), registered, said).encode()


# --- the executor ---


@pytest.fixture
def attempt(store: Store, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Runs the handler on a claimed task in this process, without any connection to Redis."""
    monkeypatch.setattr(
        handler,
        "_parts",
        lambda: handler.Parts(NOWHERE, Allowed(ALLOWED.split(","), pickles=True), StartedJobs(), 86400),
    )

    def run(row: list[Any], job: Job, attempt: int = 1) -> tuple[dict[str, Any], dict[str, Any]]:
        recorder = Recorder(1, 1000, lambda *_: None, lambda *_: None)
        carried = (time.monotonic_ns() // 1000, *row[14]) if len(row) > 14 else ()
        task = CurrentTask(
            id=row[0].decode(), type="t", attempt=attempt, failures=0, worker="w", recorder=recorder, rq_job=carried
        )
        token = current.set(task)
        try:
            enqueued_at = str(store.redis.hget(job.key, "enqueued_at").decode())  # type: ignore[union-attr]
            result = handler.rq_job(job=job.id, queue="imports", enqueued_at=enqueued_at)
            return result, json.loads(recorder.rq_job_end or b"")
        finally:
            current.reset(token)

    return run


def test_a_plain_job_takes_no_round_trip_of_its_executor(store: Store, attempt: Any) -> None:
    job = queue(store.redis).enqueue(shop.add, 1, 2, result_ttl=90)
    adopt(store)
    row = claim(store)
    result, end = attempt(row, job)
    assert result == {"job": job.id, "status": "finished"}
    assert end["began_us"] <= end["ended_us"]
    assert (end["result_ttl"], end["execution"], end["registered"]) == (90, row[0].decode(), False)
    assert pickle.loads(base64.b64decode(end["value"])) == 3
    assert report(store, row[0], json.dumps(end)) == 1
    assert job.get_status() == JobStatus.FINISHED
    assert job.return_value() == 3
    assert store.redis.hlen(keys.RQ_ADOPTED) == 0


@pytest.mark.parametrize(("options", "kept"), [({}, 86400), ({"result_ttl": 90}, 90), ({"result_ttl": -1}, -1)])
def test_the_workers_time_for_results_is_for_jobs_that_set_none(
    store: Store, attempt: Any, options: dict[str, int], kept: int
) -> None:
    job = queue(store.redis).enqueue(shop.add, 1, 2, **options)
    adopt(store)
    _, end = attempt(claim(store), job)
    assert end["result_ttl"] == kept


@pytest.mark.parametrize(
    "options",
    [
        {"result_ttl": 0},
        {"on_success": "tests.support.rq_functions.succeeded"},
        {"on_failure": "tests.support.rq_functions.failed"},
        {"repeat": 2},
    ],
)
def test_jobs_with_more_to_do_are_left_to_the_code_of_rq(store: Store, attempt: Any, options: dict[str, Any]) -> None:
    kinds = {"on_success": Callback, "on_failure": Callback, "repeat": Repeat, "result_ttl": int}
    job = queue(store.redis).enqueue(shop.add, 1, 2, **{name: kinds[name](value) for name, value in options.items()})
    adopt(store)
    with pytest.raises(ConnectionError):
        attempt(claim(store), job)


def test_a_parent_a_second_attempt_and_a_cancelled_job_are_read_again(store: Store, attempt: Any) -> None:
    job = queue(store.redis).enqueue(shop.add, 1, 2)
    adopt(store)
    row = claim(store)
    with pytest.raises(ConnectionError):
        attempt(row, job, attempt=2)
    queue(store.redis).enqueue(shop.add, 1, 2, depends_on=job)
    with pytest.raises(ConnectionError):
        attempt(claim(store), job)
    store.redis.srem(job.dependents_key, *store.redis.smembers(job.dependents_key))
    job.set_status(JobStatus.CANCELED)
    with pytest.raises(ConnectionError):
        attempt(claim(store), job)


def test_a_large_job_is_not_carried_by_the_claim(store: Store) -> None:
    queue(store.redis).enqueue(shop.add, os.urandom(100_000), b"")
    adopt(store)
    assert len(claim(store)) == 14


def test_the_task_of_a_job_that_was_settled_is_claimed_without_it(store: Store) -> None:
    queue(store.redis).enqueue(shop.add, 1, 2)
    adopt(store)
    store.redis.delete(keys.RQ_ADOPTED)
    assert len(claim(store)) == 14


# --- the report ---


def test_a_worker_that_lost_its_lease_does_not_write_to_the_job(store: Store) -> None:
    job = queue(store.redis).enqueue(shop.add, 1, 2)
    adopt(store)
    task = claim(store)[0]
    before = store.snapshot()
    assert report(store, task, end_of(), token="another") == 0
    assert store.snapshot() == before
    assert report(store, task, end_of()) == 1
    assert job.get_status() == JobStatus.FINISHED


def test_a_deleted_job_is_not_written_again(store: Store) -> None:
    job = queue(store.redis).enqueue(shop.add, 1, 2)
    adopt(store)
    task = claim(store)[0]
    job.delete()
    assert report(store, task, end_of()) == 1
    assert not store.redis.exists(job.key, keys.rq_results(job.id))
    assert job.id not in FinishedJobRegistry(queue=queue(store.redis)).get_job_ids(cleanup=False)
    assert store.redis.hlen(keys.RQ_ADOPTED) == 0


def test_a_job_that_was_enqueued_again_keeps_its_status(store: Store) -> None:
    job = queue(store.redis).enqueue(shop.add, 1, 2)
    adopt(store)
    task = claim(store)[0]
    store.redis.hset(job.key, "enqueued_at", "2030-01-01T00:00:00.000000Z")
    report(store, task, end_of())
    assert job.get_status() == JobStatus.QUEUED
    assert job.latest_result() is None


def test_the_task_of_a_job_on_which_others_depend_by_now_runs_again(store: Store) -> None:
    job = queue(store.redis).enqueue(shop.add, 1, 2)
    adopt(store)
    task = claim(store)[0]
    queue(store.redis).enqueue(shop.add, 1, 2, depends_on=job)
    assert report(store, task, end_of()) == 1
    assert job.get_status() == JobStatus.FINISHED
    again = claim(store, token="t2")
    assert (again[0], again[4]) == (task, 2)
    assert report(store, task, WRITTEN_BY_RQ, token="t2") == 1
    assert store.redis.hlen(keys.RQ_ADOPTED) == 0


def test_results_that_are_kept_forever_do_not_expire(store: Store) -> None:
    job = queue(store.redis).enqueue(shop.add, 1, 2, ttl=600, result_ttl=-1)
    adopt(store)
    report(store, claim(store)[0], end_of(kept=-1))
    assert store.redis.ttl(job.key) == store.redis.ttl(keys.rq_results(job.id)) == -1
    assert store.redis.zscore(keys.rq_finished("imports"), job.id) == float("inf")


# --- with real workers ---


@pytest.mark.parametrize("version", VERSIONS)
def test_what_is_written_is_what_a_worker_of_rq_writes(
    system: System, redis_server: EmbeddedRedis, version: str
) -> None:
    system.as_shipped = bool(environment(version))
    jobs = {name: enqueue_all(system.redis, name) for name in ("theirs", "imports")}
    command = [sys.executable, "-m", "rq.cli", "worker", "-w", "rq.SimpleWorker", "--burst", "--url", redis_server.url]
    for theirs in (["theirs"], ["theirs-json", "--serializer", "rq.serializers.JSONSerializer"]):
        subprocess.run(
            [*command, *theirs], cwd=ROOT, env={**os.environ, **environment(version)}, capture_output=True, timeout=60,
            check=True,
        )  # fmt: skip
    system.start_worker(**ADOPTING, **environment(version))
    for job in jobs["imports"]:
        wait_until(lambda job=job: job.get_status() == JobStatus.FINISHED, "it is finished")  # type: ignore[misc]
    wait_until(lambda: not system.redis.exists(keys.RQ_ADOPTED), "all have been reported")
    for expected, ours in zip(jobs["theirs"], jobs["imports"], strict=True):
        assert written(system.redis, ours) == written(system.redis, expected)


def enqueue_all(redis: Redis, name: str) -> list[Job]:
    name_of_json = name if name == "imports" else f"{name}-json"
    own, in_json = queue(redis, name), Queue(name_of_json, connection=redis, serializer=JSONSerializer)
    return [
        own.enqueue(shop.add, 1, 2),
        own.enqueue(shop.sleep, 0),
        own.enqueue(shop.sleep, 0.2),
        own.enqueue(shop.add, 1, 2, result_ttl=90, ttl=600, meta={"order": 7}),
        own.enqueue(shop.add, 1, 2, result_ttl=-1),
        own.enqueue(shop.add_soon, 1, 2),
        own.enqueue(shop.big, 100_000),
        own.enqueue(shop.no_result),
        in_json.enqueue(shop.add, 1, 2),
    ]


def written(redis: Any, job: Job) -> dict[str, Any]:
    """What RQ keeps of a job that ended; of moments, ids and names only that they are there."""
    fields = {name.decode(): value for name, value in redis.hgetall(job.key).items()}
    results = redis.xrange(keys.rq_results(job.id))
    [(_, result)] = results
    ended = float(result[b"execution_ended_at"])
    kept = redis.zscore(keys.rq_finished(job.origin), job.id)
    return {
        "fields": {name: bool(value) if name in LATER else value for name, value in fields.items()},
        "result": {name: value for name, value in result.items() if name in (b"type", b"return_value")},
        "result fields": set(result),
        "expire": [_after(ended, redis.expiretime(key)) for key in (job.key, keys.rq_results(job.id))],
        "registry": _after(ended, kept),
        "started": StartedJobRegistry(job.origin, connection=redis).get_job_ids(cleanup=False),
        "executions": redis.zcard(keys.rq_executions(job.id)),
        "took": int(ended - float(result[b"execution_started_at"])),
    }


def _after(ended: float, moment: float) -> float:
    """For about how many seconds after its end something is kept; as it is where it does not expire."""
    return round((moment - ended) / 10) if 0 < moment < float("inf") else moment


def test_a_job_that_runs_for_a_moment_is_shown_as_started(system: System, tmp_path: Path) -> None:
    system.start_worker(**ADOPTING)
    job = queue(system.redis).enqueue(shop.until_there, str(tmp_path / "end"))
    wait_until(lambda: job.get_status() == JobStatus.STARTED, "it has started")
    registry = StartedJobRegistry(queue=queue(system.redis))
    assert registry.get_job_ids(cleanup=False) == [job.id]
    [execution] = job.get_executions()
    seen = now()
    (tmp_path / "end").touch()
    wait_until(lambda: job.get_status() == JobStatus.FINISHED, "it is finished")
    assert registry.get_job_ids(cleanup=False) == []
    latest: Any = job.latest_result()
    assert latest.execution_id == execution.id
    assert latest.execution_started_at < seen < latest.execution_ended_at
    assert not system.redis.exists(execution.key, keys.rq_executions(job.id))


@pytest.mark.parametrize("version", VERSIONS)
def test_a_function_sees_its_job_as_started(system: System, version: str) -> None:
    system.as_shipped = bool(environment(version))
    system.start_worker(**ADOPTING, **environment(version))
    job = queue(system.redis).enqueue(shop.own_state)
    wait_until(lambda: job.get_status() == JobStatus.FINISHED, "it is finished")
    assert job.return_value() == ["started", True, True]
    wait_until(lambda: not system.redis.exists(keys.rq_executions(job.id)), "its execution is gone")


def test_the_result_of_a_failed_job_tells_when_it_ran(system: System, tmp_path: Path) -> None:
    system.start_worker(**ADOPTING)
    job = queue(system.redis).enqueue(shop.until_there_and_fail, str(tmp_path / "end"))
    wait_until(lambda: job.get_status() == JobStatus.STARTED, "it has started")
    seen = now()
    (tmp_path / "end").touch()
    wait_until(lambda: job.get_status() == JobStatus.FAILED, "it has failed")
    latest: Any = job.latest_result()
    job.refresh()
    assert latest.execution_started_at <= job.started_at < seen < latest.execution_ended_at
    assert not system.redis.exists(keys.rq_executions(job.id))


def test_jobs_that_come_to_depend_on_a_running_one_are_enqueued(system: System, tmp_path: Path) -> None:
    system.start_worker(**ADOPTING, WORKER_EXECUTORS="2")
    parent = queue(system.redis).enqueue(shop.until_there, str(tmp_path / "end"))
    wait_until(lambda: parent.get_status() == JobStatus.STARTED, "the parent runs")
    child = queue(system.redis).enqueue(shop.add, 1, 2, depends_on=parent)
    assert child.get_status() == JobStatus.DEFERRED
    (tmp_path / "end").touch()
    wait_until(lambda: child.get_status() == JobStatus.FINISHED, "the child is finished")


def test_a_started_job_whose_worker_was_killed_runs_again(system: System) -> None:
    system.start_housekeeper()
    worker = system.start_worker(**ADOPTING)
    job = queue(system.redis).enqueue(shop.note_slowly_at_first, shop.own_key("slowly"))
    wait_until(lambda: system.redis.llen(shop.own_key("slowly")) == 1, "its function runs")
    worker.kill()
    worker.wait()
    system.start_worker(**ADOPTING)
    wait_until(lambda: job.get_status() == JobStatus.FINISHED, "it is finished")
    assert system.redis.llen(shop.own_key("slowly")) == 2
    assert StartedJobRegistry(queue=queue(system.redis)).get_job_ids(cleanup=False) == []


def test_an_executor_that_is_killed_leaves_no_execution_behind(system: System) -> None:
    system.start_housekeeper()
    worker = system.start_worker(**ADOPTING)
    job = queue(system.redis).enqueue(shop.note_slowly_at_first, shop.own_key("again"))
    wait_until(lambda: system.redis.exists(shop.own_key("again")), "its function runs")
    for pid in system.executors(worker):
        os.kill(pid, signal.SIGKILL)
    wait_until(lambda: job.get_status() == JobStatus.FINISHED, "it is finished")
    assert StartedJobRegistry(queue=queue(system.redis)).get_job_ids(cleanup=False) == []
    assert not system.redis.exists(keys.rq_executions(job.id))
