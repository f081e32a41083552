"""RQ's own tools read a running system and see what the API says; what those do that change something."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from contextlib import suppress
from datetime import timedelta
from functools import partial
from pathlib import Path
from threading import Thread
from urllib.request import urlopen

import pytest
from redis import Redis
from rq import Queue, SimpleWorker
from rq.exceptions import NoSuchJobError
from rq.job import Job
from rq.registry import FailedJobRegistry, FinishedJobRegistry, ScheduledJobRegistry, StartedJobRegistry
from rq_dashboard.app import create_app

from firmq.shared.domain import task_data
from firmq.shared.domain.task import RQ_STATUS, TaskState
from firmq.shared.local.embedded_redis import EmbeddedRedis
from tests.support.harness import ROOT, System, free_port, wait_until
from tests.support.keys import keys
from tests.support.rq_versions import VERSIONS, environment

PAGE = ROOT / "docs" / "guides" / "working-with-rq.md"


def fetch(system: System, task_id: str) -> Job:
    return Job.fetch(task_id, connection=system.redis, serializer="json")


def _is_in(system: System, task_id: str, state: TaskState) -> bool:
    return system.records.state(task_id) is state


@pytest.fixture
def busy(system: System) -> dict[TaskState, str]:
    """A task in each state that a worker brings about."""
    system.start_worker(MAX_RETRIES="1", INITIAL_RETRY_DELAY="600", WORKER_EXECUTORS="2")
    tasks = {
        TaskState.COMPLETED: system.submit("echo", '{"answer": [42]}'),
        TaskState.FAILED: system.submit("stubborn", '"give up"'),
        TaskState.RETRYING: system.submit("fail", "{}"),
        TaskState.RUNNING: system.submit("slowly", '{"seconds": 60}'),
    }
    for state, task_id in tasks.items():
        wait_until(partial(_is_in, system, task_id, state), f"it is {state}")
    system.queues.pause("low", "to keep one waiting")
    tasks[TaskState.CANCELLED] = system.submit("noop", queue="low")
    tasks[TaskState.PENDING] = system.submit("noop", queue="low")
    system.queues.cancel(tasks[TaskState.CANCELLED], "")
    return tasks


def test_jobs_fetched_by_rq_show_the_state_of_the_api(system: System, busy: dict[TaskState, str]) -> None:
    for state, task_id in busy.items():
        job = fetch(system, task_id)
        assert job.get_status() == RQ_STATUS[state], state
        assert job.description == system.records.get(task_id).summary.type
        assert job.created_at == system.records.get(task_id).summary.created_at
    done = fetch(system, busy[TaskState.COMPLETED])
    assert done.return_value() == {"answer": [42]}
    assert done.args == ["echo", {"answer": [42]}]
    failed = fetch(system, busy[TaskState.FAILED]).latest_result()
    assert failed is not None
    assert "GiveUp: it can never work" in (failed.exc_string or "")


def test_rq_info_reads_a_running_system(
    system: System, busy: dict[TaskState, str], redis_server: EmbeddedRedis
) -> None:
    [worker] = wait_until(lambda: [each for each in system.workers.all() if each.completed], "the worker's heartbeat")
    done = subprocess.run(
        [sys.executable, "-m", "rq.cli", "info", "--url", redis_server.url, "--raw"],
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
    )
    assert "queue normal 0, 1 executing, 1 finished, 1 failed" in done.stdout
    assert f"worker {worker.name} ({worker.host} " in done.stdout
    assert "busy critical, high, normal, low. jobs: 1 finished" in done.stdout


def test_rq_dashboard_reads_a_running_system(
    system: System, busy: dict[TaskState, str], redis_server: EmbeddedRedis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RQ_DASHBOARD_REDIS_URL", redis_server.url)
    monkeypatch.setenv("RQ_DASHBOARD_JSON_SERIALIZER", "true")
    client = create_app().test_client()
    for path in ("queues.json", "workers.json", *(f"job/{task_id}.json" for task_id in busy.values())):
        answer = client.get(f"/rq-dashboard/0/data/{path}")
        assert answer.status_code == 200, path
        assert json.loads(answer.data)


def documented(tool: str) -> str:
    """Returns the command of the page that starts this tool."""
    [command] = re.findall(rf"^\$ (\.venv/bin/{tool} .*)$", PAGE.read_text(), re.MULTILINE)
    return str(command)


@pytest.fixture
def checkout(tmp_path: Path, redis_server: EmbeddedRedis) -> Path:
    """A folder in which the commands of the page work as they are written."""
    (tmp_path / ".venv").symlink_to(sys.prefix)
    (tmp_path / ".data").mkdir()
    (tmp_path / ".data" / "redis.url").write_text(redis_server.url)
    return tmp_path


@pytest.mark.parametrize("version", VERSIONS)
def test_the_documented_rq_info_works(system: System, busy: dict[TaskState, str], checkout: Path, version: str) -> None:
    env = {**os.environ, **environment(version)}
    done = subprocess.run(
        documented("rq info"), shell=True, cwd=checkout, env=env, capture_output=True, text=True, timeout=60, check=True
    )
    assert "queue normal 0, 1 executing, 1 finished, 1 failed" in done.stdout


@pytest.mark.parametrize("version", VERSIONS)
def test_the_documented_rq_dashboard_works(
    system: System, busy: dict[TaskState, str], checkout: Path, version: str
) -> None:
    [worker] = (each.name for each in system.workers.all())
    port, env = free_port(), {**os.environ, **environment(version)}
    command = f"exec {documented('rq-dashboard')} --port {port}"
    with subprocess.Popen(command, shell=True, cwd=checkout, env=env) as process:
        try:
            root = f"http://127.0.0.1:{port}"
            wait_until(lambda: succeeds(root), "it answers", 60)
            wait_until(lambda: b"busy" in system.redis.hvals(keys.rq_worker(worker)), "its heartbeat says what it does")
            paths = ["queues.json", "workers.json", *(f"job/{task}.json" for task in busy.values())]
            registries = ("queued", "finished", "failed", "scheduled", "started")
            paths += [f"jobs/normal/{registry}/10/asc/1.json" for registry in registries]
            for path in paths:
                with urlopen(f"{root}/0/data/{path}", timeout=30) as answer:
                    assert json.load(answer), path
        finally:
            process.terminate()


def succeeds(url: str) -> bool:
    with suppress(OSError), urlopen(url, timeout=5) as answer:
        return bool(answer.status == 200)
    return False


def test_counting_with_rq_registries_changes_no_live_task(system: System, busy: dict[TaskState, str]) -> None:
    def count(redis: Redis) -> None:
        for queue in ("normal", "low"):
            for registry in (StartedJobRegistry, FinishedJobRegistry, FailedJobRegistry, ScheduledJobRegistry):
                registry(queue, connection=redis, serializer="json").get_job_ids()

    threads = [Thread(target=count, args=(system.redis,)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for state, task_id in busy.items():
        assert system.records.state(task_id) is state
    running = StartedJobRegistry("normal", connection=system.redis, serializer="json").get_job_ids()
    assert running == [busy[TaskState.RUNNING]]


@pytest.mark.parametrize("function", ["firmq.rq.refuse", "shared.domain.task_data.refuse"])
def test_an_rq_worker_that_takes_an_entry_runs_nothing(
    system: System, redis_server: EmbeddedRedis, function: str
) -> None:
    system.queues.pause("low", "only the stranger takes from it")
    task_id = system.submit("echo", '{"order": 7}', queue="low")
    stored = task_data.encode("echo", '{"order": 7}').replace("firmq.rq.refuse", function)
    system.redis.hset(keys.rq_job(task_id), "data", stored)
    command = [sys.executable, "-m", "rq.cli", "worker", "--burst", "--url", redis_server.url]
    done = subprocess.run(
        [*command, "-S", "rq.serializers.JSONSerializer", "low"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    if function == "firmq.rq.refuse":
        assert "RuntimeError: 'echo' is a task of Firmq, which an RQ worker does not run" in done.stderr
    assert system.records.state(task_id) is TaskState.PENDING
    system.queues.resume("low")
    system.start_worker()
    system.start_housekeeper()
    assert system.ended(task_id).result == {"order": 7}


def test_a_requeue_by_a_stock_tool_does_not_run_the_task_twice(system: System, busy: dict[TaskState, str]) -> None:
    fetch(system, busy[TaskState.FAILED]).requeue()
    beside = system.submit("noop")
    system.ended(beside)
    assert system.records.state(busy[TaskState.FAILED]) is TaskState.FAILED
    assert len(system.records.get(busy[TaskState.FAILED]).attempts) == 1


def test_rq_empty_deletes_what_waits_and_rq_requeue_sends_nothing_back(
    system: System, busy: dict[TaskState, str], redis_server: EmbeddedRedis
) -> None:
    def rq(*arguments: str) -> str:
        command = [sys.executable, "-m", "rq.cli", *arguments, "--url", redis_server.url]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
        return done.stdout + done.stderr

    said = rq("requeue", "--queue", "normal", "--all", "-S", "rq.serializers.JSONSerializer")
    assert "Requeueing 1 jobs" in said
    system.ended(system.submit("noop"))
    assert system.records.state(busy[TaskState.FAILED]) is TaskState.FAILED
    rq("empty", "low", "-S", "rq.serializers.JSONSerializer")
    with pytest.raises(NoSuchJobError):
        fetch(system, busy[TaskState.PENDING])


def test_rq_suspend_stops_nothing_and_a_cancel_by_rq_is_none(system: System, redis_server: EmbeddedRedis) -> None:
    command = [sys.executable, "-m", "rq.cli", "suspend", "--url", redis_server.url]
    subprocess.run(command, capture_output=True, timeout=60, check=True)
    cancelled = system.submit("noop", queue="low")
    fetch(system, cancelled).cancel()
    assert fetch(system, cancelled).get_status() == "canceled"
    system.start_worker()
    system.start_housekeeper()
    assert system.ended(system.submit("noop")).summary.state is TaskState.COMPLETED
    assert system.ended(cancelled).summary.state is TaskState.COMPLETED, "the task got a new entry and ran"
    assert fetch(system, cancelled).get_status() == "finished"


@pytest.mark.parametrize(("exact", "whole"), [(30.0, 30), (0.5, 1), (2.25, 3)])
def test_rq_reads_a_task_that_has_its_own_time_limit(system: System, exact: float, whole: int) -> None:
    task_id = system.submit("noop", timeout=timedelta(seconds=exact))
    assert fetch(system, task_id).timeout == whole
    assert system.records.get(task_id).timeout == timedelta(seconds=exact)


def test_a_time_limit_of_a_part_of_a_second_holds(system: System) -> None:
    system.start_worker(MAX_RETRIES="0")
    dead = system.ended(system.submit("slowly", '{"seconds": 60}', timeout=timedelta(seconds=0.5)))
    assert dead.attempts[0].ended_at - dead.attempts[0].started_at < timedelta(seconds=30)  # type: ignore[operator]
    assert dead.summary.error is not None
    assert "0.5 s" in dead.summary.error.message


def test_a_late_failure_of_a_stock_worker_does_not_hide_the_result(system: System) -> None:
    system.start_worker()
    task_id = system.submit("echo", '{"answer": [42]}')
    system.ended(task_id)
    job, queue = fetch(system, task_id), Queue("normal", connection=system.redis, serializer="json")
    stock = SimpleWorker([queue], connection=system.redis, serializer="json")
    stock.handle_job_failure(job, queue, exc_string="ModuleNotFoundError: too late")
    assert fetch(system, task_id).get_status() == "failed", "what RQ reads is what RQ wrote last"
    assert fetch(system, task_id).return_value() is None
    for seen in (system.records.get(task_id), system.records.read_many([task_id])[task_id].detail):
        assert (seen.summary.state, seen.result) == (TaskState.COMPLETED, {"answer": [42]})


def test_a_task_removed_by_a_stock_tool_stops_nothing(system: System) -> None:
    task_id = system.submit("noop")
    fetch(system, task_id).delete()
    with pytest.raises(NoSuchJobError):
        fetch(system, task_id)
    worker = system.start_worker()
    system.start_housekeeper()
    assert system.ended(system.submit("noop")).summary.state is TaskState.COMPLETED
    wait_until(lambda: system.records.counts()[TaskState.PENDING] == 0, "the index forgets it", 20)
    wait_until(lambda: not Queue("normal", connection=system.redis).job_ids, "the list forgets it", 20)
    assert worker.poll() is None
