"""What RQ's tools and programs see of the tasks that are made of their jobs: nothing, also in queues named as ours."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from redis import Redis
from rq import Queue
from rq.job import Job, Retry
from rq.registry import FailedJobRegistry

from firmq.shared.config.settings import Settings
from firmq.shared.domain.queue_selection import ANY_QUEUE_NAME
from firmq.shared.domain.task import RQ_JOB_TYPE
from firmq.shared.redis.client import text
from firmq.shared.redis.scripts import Scripts
from firmq.shared.stores.pauses import Pauses, of_type
from tests.support import rq_functions as shop
from tests.support.harness import ROOT, System, wait_until
from tests.support.keys import keys

NAMES = ("high", "default", "low", "critical")
SETTINGS = {"RQ_QUEUES": ",".join(NAMES), "RQ_ALLOW": "tests.support.rq_functions.*", "RQ_PICKLE": "true"}


def queue(redis: Redis, name: str) -> Any:
    return Queue(name, connection=redis)


def rq(system: System, *command: str) -> str:
    arguments = [sys.executable, "-m", "rq.cli", *command, "--url", system.url]
    return subprocess.run(arguments, cwd=ROOT, capture_output=True, text=True, timeout=60, check=True).stdout


def seen_by_rq(redis: Redis) -> set[str]:
    """Returns the ids in all lists and registries of the queues that RQ knows."""
    found: set[str] = set()
    for each in Queue.all(connection=redis):
        registries = [getattr(each, name) for name in dir(each) if name.endswith("_registry")]
        found.update(each.job_ids, *(registry.get_job_ids(cleanup=False) for registry in registries))
    return found


def run_one_of_each_end(system: System, names: tuple[str, ...]) -> list[Job]:
    """Enqueues jobs into these queues; returns them when all have ended."""
    jobs = [
        job
        for name in names
        for job in (
            queue(system.redis, name).enqueue(shop.add, 1, 1),
            queue(system.redis, name).enqueue(shop.fail),
            queue(system.redis, name).enqueue(shop.fail, retry=Retry(max=1)),
            queue(system.redis, name).enqueue("os.getpid"),
            queue(system.redis, name).enqueue(shop.kill),
        )
    ]
    wait_until(lambda: all(job.get_status() in ("finished", "failed") for job in jobs), "all have ended", 90)
    wait_until(lambda: not system.redis.exists(keys.RQ_ADOPTED), "all tasks have ended")
    return jobs


@pytest.mark.parametrize(
    "extra", [{}, {"RQ_QUEUES": "high,default,low,critical,normal"}], ids=["some of our names", "all of our names"]
)
def test_tasks_of_jobs_are_in_no_structure_of_rq(system: System, extra: dict[str, str]) -> None:
    settings = {**SETTINGS, **extra, "MAX_CRASHES": "2"}
    names = tuple(settings["RQ_QUEUES"].split(","))
    system.start_housekeeper(**settings)
    system.start_worker(**settings)
    jobs = run_one_of_each_end(system, names)
    assert {each.name for each in Queue.all(connection=system.redis)} == set(names)
    assert seen_by_rq(system.redis) == {job.id for job in jobs}
    assert [FailedJobRegistry(name, system.redis).count for name in names] == [4] * len(names)
    assert "queue high 0, 0 executing, 1 finished, 4 failed" in rq(system, "info", "--raw")
    dead = text(system.redis.zrange(keys.ended("failed"), 0, 0)[0])
    assert "Requeueing 4 jobs" in rq(system, "requeue", "--queue", "low", "--all")
    wait_until(lambda: FailedJobRegistry("low", system.redis).count == 4, "they have failed again", 90)
    assert system.redis.hget(keys.rq_job(dead), "state") == b"failed"


def test_a_task_that_is_throttled_or_runs_is_in_none_either(system: System, tmp_path: Path) -> None:
    pauses = Pauses(Scripts(system.redis))
    pauses.pause(of_type(RQ_JOB_TYPE), "test")
    system.start_worker(**SETTINGS)
    job = queue(system.redis, "high").enqueue(shop.until_there, str(tmp_path / "end"))
    wait_until(lambda: system.redis.zcard(keys.throttled("rq:high")) == 1, "its task is throttled", 60)
    assert seen_by_rq(system.redis) == set()
    assert [each.name for each in Queue.all(connection=system.redis)] == ["high"]
    assert not system.redis.exists(keys.rq_deferred("rq:high"))
    pauses.resume(of_type(RQ_JOB_TYPE))
    wait_until(lambda: job.get_status() == "started", "the job runs")
    assert seen_by_rq(system.redis) == {job.id}
    assert not system.redis.exists(keys.rq_started("rq:high"))


def test_a_task_of_ours_lists_its_queue_for_rq(system: System) -> None:
    system.start_worker(**SETTINGS)
    job = queue(system.redis, "high").enqueue(shop.add, 1, 1)
    wait_until(lambda: job.get_status() == "finished", "the job has run", 60)
    system.ended(system.submit("noop"))
    assert {each.name for each in Queue.all(connection=system.redis)} == {"high", "normal"}
    assert seen_by_rq(system.redis) == {
        job.id,
        *(text(each) for each in system.redis.zrange("rq:finished:normal", 0, -1)),
    }
    assert system.redis.zcard("rq:finished:normal") == 1


def test_what_earlier_versions_left_in_rqs_registries_is_removed(system: System) -> None:
    system.start_worker(**SETTINGS)
    job = queue(system.redis, "high").enqueue(shop.fail)
    wait_until(lambda: job.get_status() == "failed", "the job has failed", 60)
    wait_until(lambda: system.redis.zcard(keys.ended("failed")) == 1, "its task is a dead letter")
    [task] = map(text, system.redis.zrange(keys.ended("failed"), 0, -1))
    system.redis.zadd(keys.rq_failed("rq:high"), {task: "inf"})
    system.start_housekeeper(**SETTINGS)
    wait_until(lambda: not system.redis.exists(keys.rq_failed("rq:high")), "the registry is as RQ knows it", 60)


@pytest.mark.parametrize(
    ("worker_queues", "own"),
    [({}, ("critical", "high", "normal", "low")), ({"high": None}, ("high",)), ({"*": None}, ())],
)
def test_tasks_of_jobs_are_in_queues_that_only_workers_of_that_queue_take_from(
    worker_queues: dict[str, Any], own: tuple[str, ...]
) -> None:
    names = ("high", "imports", "a:b", "a_b", "x" * 90, "*")
    about = {"rq_allow": ("shop.*",), "worker_queues": worker_queues}
    settings = Settings.model_validate({**about, "rq_queues": names})
    adopted = list(settings.adopted_queues().values())
    assert adopted[:2] == ["rq:high", "rq:imports"]
    assert len(set(adopted)) == len(names)
    assert all(map(ANY_QUEUE_NAME.fullmatch, adopted))
    assert set(settings.queue_selection.names) >= {*adopted, *own}
    other = Settings.model_validate({**about, "rq_queues": ("mail",)}).queue_selection
    assert not any(map(other.takes, adopted))
