"""`rq worker -w firmq.rq.Worker`: RQ's command line with this engine; its options mean what RQ says."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import quote

import psutil
import pytest
from redis import Redis
from redis.sentinel import Sentinel
from rq import Queue, Worker
from rq.command import (
    send_command,
    send_kill_horse_command,
    send_shutdown_command,
    send_stop_execution_command,
    send_stop_job_command,
)
from rq.job import Dependency, Job
from rq.registry import FailedJobRegistry, StartedJobRegistry
from rq.suspension import suspend

from firmq.rq import Worker as OurWorker
from firmq.shared.local.embedded_redis import EmbeddedRedis
from firmq.shared.redis.client import text
from firmq.worker.features.rq.terms import VARIABLE, Terms
from firmq.worker.features.rq.worker_class import address_of
from tests.support import rq_functions as shop
from tests.support.harness import ROOT, System, wait_until
from tests.support.keys import keys
from tests.support.rq_versions import VERSIONS, environment

STARTED = 90
ODD = "p#/w"
"""Characters that would end an address early."""


OF_EACH_RQ = pytest.mark.parametrize("system", VERSIONS, indirect=True)


@pytest.fixture
def system(system: System, redis_server: EmbeddedRedis, request: pytest.FixtureRequest) -> System:
    """As RQ programs have it: with all rights, also those for RQ's channels; with the installed RQ or a named one."""
    other = environment(request.param) if hasattr(request, "param") else {}
    return replace(system, url=redis_server.url, environment={**other}, as_shipped=bool(other))


def start(system: System, *options: str, queues: tuple[str, ...] = ("high", "default")) -> subprocess.Popen[bytes]:
    """Starts `rq worker -w` as its users do."""
    return system.start("rq.cli", "worker", "--url", system.url, "-w", "firmq.rq.Worker", *options, *queues)


def queue(system: System, name: str = "default") -> Any:
    return Queue(name, connection=system.redis)


def ended(process: subprocess.Popen[bytes]) -> int:
    try:
        return process.wait(STARTED)
    except subprocess.TimeoutExpired:
        raise AssertionError(f"{process.args!r} has not ended") from None


def finished(job: Job) -> bool:
    return job.get_status() == "finished"


@OF_EACH_RQ
def test_burst_runs_what_is_there_and_ends(system: System) -> None:
    jobs = [queue(system, name).enqueue(shop.add, 1, number) for number in range(15) for name in ("default", "high")]
    assert ended(start(system, "--burst")) == 0
    assert all(map(finished, jobs))
    assert not Worker.all(connection=system.redis)


@OF_EACH_RQ
def test_round_robin_takes_one_job_of_each_queue_in_turn(system: System) -> None:
    names = ("one", "two", "three")
    for name in names:
        queue(system, name).enqueue_many([Queue.prepare_data(shop.note, ("rq:program:order", name))] * 3)
    assert ended(start(system, "--burst", "--dequeue-strategy", "round_robin", queues=names)) == 0
    assert [*map(text, system.redis.lrange("rq:program:order", 0, -1))] == [*names] * 3


@OF_EACH_RQ
def test_a_worker_runs_the_jobs_of_its_own_queues_only(system: System) -> None:
    served = {"one": ("gpu",), "two": ("mail", "web")}
    jobs = {name: [queue(system, name).enqueue(shop.sleep, 0.01) for _ in range(40)] for name in ("gpu", "mail", "web")}
    running = [start(system, "--burst", "--name", name, queues=queues) for name, queues in served.items()]
    assert [ended(each) for each in running] == [0, 0]
    for name, queues in served.items():
        for job in (job for each in queues for job in jobs[each]):
            job.refresh()
            assert (job.get_status(), job.worker_name) == ("finished", name)


def test_jobs_of_a_queue_whose_worker_was_killed_hold_up_no_other_queue(system: System) -> None:
    gone = start(system, queues=("gpu",))
    stuck = queue(system, "gpu").enqueue_many([Queue.prepare_data(shop.sleep, (600,))] * 1500)
    wait_until(lambda: system.redis.hlen(keys.RQ_ADOPTED) >= 1000, "many of its jobs are adopted", STARTED)
    os.kill(gone.pid, signal.SIGKILL)
    job = queue(system, "mail").enqueue(shop.add, 1, 1)
    assert ended(start(system, "--burst", queues=("mail",))) == 0
    assert finished(job)
    assert not any(map(finished, stuck))


def test_a_job_of_the_first_queue_starts_before_the_backlog_of_others(system: System, tmp_path: Path) -> None:
    jobs = [(shop.sleep, (0.2,)), (shop.until_there, (str(tmp_path / "end"),)), *[(shop.sleep, (0.2,))] * 28]
    slow = [queue(system).enqueue(function, *arguments) for function, arguments in jobs]
    process = start(system, "--burst")
    wait_until(lambda: slow[1].get_status() == "started", "the first job has run", STARTED)
    urgent = queue(system, "high").enqueue(shop.add, 1, 1)
    (tmp_path / "end").touch()
    assert ended(process) == 0
    starts = sorted(job.started_at for job in (*slow, urgent) if job.refresh() is None and job.started_at)
    assert len(starts) == 31
    assert starts.index(urgent.started_at) < 15


def test_a_signal_before_the_engine_is_up_is_a_stop_in_order(system: System) -> None:
    process = start(system)
    wait_until(lambda: commands(process.pid), "the engine is being started", STARTED)
    process.send_signal(signal.SIGTERM)
    assert ended(process) == 0


def test_a_signal_while_the_engine_is_being_started_is_not_lost(
    system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    def start_slowly(self: OurWorker, *arguments: Any) -> subprocess.Popen[bytes]:
        os.kill(os.getpid(), signal.SIGTERM)
        return starting(self, *arguments)

    starting = OurWorker._start
    monkeypatch.setattr(OurWorker, "_start", start_slowly)
    assert OurWorker([queue(system)], connection=system.redis).work() is False


def test_burst_does_not_wait_for_a_suspended_queue(system: System) -> None:
    job = queue(system).enqueue(shop.add, 1, 1)
    suspend(system.redis)
    assert OurWorker([queue(system)], connection=system.redis).work(burst=True) is False
    assert job.get_status() == "queued"


def test_no_more_jobs_are_taken_than_max_jobs(system: System) -> None:
    jobs = [queue(system).enqueue(shop.add, 1, number) for number in range(5)]
    assert ended(start(system, "--max-jobs", "2")) == 0
    assert [finished(job) for job in jobs] == [True, True, False, False, False]
    assert queue(system).job_ids == [job.id for job in jobs[2:]]


def test_it_ends_after_max_idle_time(system: System) -> None:
    job = queue(system).enqueue(shop.add, 1, 1)
    assert ended(start(system, "--max-idle-time", "1")) == 0
    assert finished(job)


@pytest.mark.parametrize("options", [(), ("--with-scheduler",)])
def test_scheduled_jobs_are_enqueued_with_scheduler_only(system: System, options: tuple[str, ...]) -> None:
    due = queue(system).enqueue_in(timedelta(seconds=-1), shop.add, 1, 1)
    assert ended(start(system, "--burst", *options)) == 0
    assert finished(due) == bool(options)


@OF_EACH_RQ
def test_its_name_queues_and_result_ttl_are_those_of_the_command(system: System) -> None:
    process = start(system, "--name", "nightly", "--results-ttl", "86400")
    wait_until(
        lambda: [each.name for each in Worker.all(connection=system.redis)] == ["nightly"], "it is listed", STARTED
    )
    [worker] = Worker.all(connection=system.redis)
    assert worker.queue_names() == ["high", "default"]
    assert Worker.count(queue=queue(system, "high")) == 1
    job = queue(system).enqueue(shop.add, 1, 1)
    wait_until(lambda: finished(job), "the job has run")
    assert 80_000 < system.redis.ttl(job.key) <= 86_400
    send_shutdown_command(system.redis, "nightly")
    assert ended(process) == 0
    assert Worker.count(connection=system.redis) == 0


def test_a_signal_lets_the_job_end_and_a_second_one_does_not(system: System) -> None:
    process = start(system)
    first = queue(system).enqueue(shop.sleep, 2)
    wait_until(lambda: first.get_status() == "started", "the job runs", STARTED)
    process.send_signal(signal.SIGINT)
    assert ended(process) == 0
    assert finished(first)
    process = start(system)
    second = queue(system).enqueue(shop.sleep, 600)
    wait_until(lambda: second.get_status() == "started", "the job runs", STARTED)
    process.send_signal(signal.SIGTERM)
    wait_until(lambda: [each.state for each in system.workers.all()] == ["draining"], "the signal has arrived", STARTED)
    time.sleep(1.2)  # RQ takes a second signal within a second for the first one
    process.send_signal(signal.SIGTERM)
    assert ended(process) == 0
    assert not finished(second)


@OF_EACH_RQ
def test_a_killed_command_leaves_no_process_behind(system: System) -> None:
    process = start(system)
    job = queue(system).enqueue(shop.add, 1, 1)
    wait_until(lambda: finished(job), "the job has run", STARTED)
    wait_until(lambda: "housekeeper" in commands(process.pid), "a housekeeper runs")
    children = psutil.Process(process.pid).children(recursive=True)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    gone, alive = psutil.wait_procs(children, timeout=STARTED)
    assert gone
    assert not alive


def commands(pid: int) -> list[str]:
    """What the processes of a worker are."""
    found: list[list[str]] = []
    with suppress(psutil.NoSuchProcess):  # also a zombie: it is ending
        for each in psutil.Process(pid).children(recursive=True):
            with suppress(psutil.NoSuchProcess):
                found.append(each.cmdline())
    return [each[3] for each in found if each[1:3] == ["-m", "firmq"]]


def test_workers_of_one_machine_have_one_housekeeper_and_another_when_its_worker_ends(system: System) -> None:
    processes = [start(system), start(system)]

    def housekeepers() -> list[int]:
        return [each.pid for each in processes if each.poll() is None and "housekeeper" in commands(each.pid)]

    wait_until(lambda: len(housekeepers()) == 1, "one has a housekeeper", STARTED)
    wait_until(lambda: Worker.count(connection=system.redis) == 2, "both are up", STARTED)
    [holder] = housekeepers()
    os.kill(holder, signal.SIGTERM)
    wait_until(lambda: (now := housekeepers()) and now != [holder], "the other one has a housekeeper", STARTED)
    for each in processes:
        if each.pid != holder:
            each.send_signal(signal.SIGTERM)
        assert ended(each) == 0


def start_two(system: System, **options: Any) -> tuple[subprocess.Popen[bytes], Job, Job]:
    """Returns a worker, a job that it runs and one that it runs as well."""
    system.environment["WORKER_EXECUTORS"] = "2"
    process = start(system, "--name", "two")
    jobs = [queue(system).enqueue(shop.sleep, 600, **options), queue(system).enqueue(shop.sleep, 600)]
    waits = queue(system).enqueue(shop.add, 1, 1)
    wait_until(lambda: all(each.get_status() == "started" for each in jobs), "both run", STARTED)
    jobs[0].meta["waits"] = waits.id
    return process, jobs[0], jobs[1]


@OF_EACH_RQ
@pytest.mark.parametrize(
    "options", [{}, {"on_stopped": shop.stopped, "on_failure": shop.failed}], ids=["plain", "callbacks"]
)
def test_stop_job_ends_that_job_as_rq_does(system: System, options: dict[str, Any]) -> None:
    process, job, other = start_two(system, **options)
    dependent = queue(system).enqueue(shop.add, 1, 2, depends_on=Dependency(job, allow_failure=True))
    send_stop_job_command(system.redis, job.id)
    wait_until(lambda: job.get_status() == "stopped", "it has stopped", STARTED)
    assert FailedJobRegistry("default", system.redis).get_job_ids() == [job.id]
    assert StartedJobRegistry("default", system.redis).get_job_ids() == [other.id]
    assert "cancelled" in str(job.exc_info)
    wait_until(lambda: finished(Job.fetch(job.meta["waits"], system.redis)), "the next job has run")
    if options:
        wait_until(lambda: system.redis.lrange(shop.own_key(job.id), 0, -1) == [b"stopped"], "on_stopped was called")
    assert [other.get_status(), dependent.get_status()] == ["started", "deferred"]
    job.requeue()
    wait_until(lambda: job.get_status() == "started", "it runs again")
    send_stop_execution_command(system.redis, job.id, job.get_executions()[0].id)
    wait_until(lambda: job.get_status() == "stopped", "it has stopped again")
    send_kill_horse_command(system.redis, "two")
    wait_until(lambda: other.get_status() == "failed", "the other one was killed")
    wait_until(lambda: OurWorker.all(connection=system.redis)[0].get_state() == "idle", "the worker waits for more")
    assert process.poll() is None


def test_a_command_to_stop_what_does_not_run_here_changes_nothing(system: System) -> None:
    done = queue(system).enqueue(shop.add, 1, 1)
    process = start(system, "--name", "one")
    job = queue(system).enqueue(shop.sleep, 2)
    wait_until(lambda: job.get_status() == "started", "it runs", STARTED)
    send_command(system.redis, "one", "stop-job", job_id=done.id)
    send_command(system.redis, "one", "stop-job", job_id="unknown")
    send_command(system.redis, "other", "stop-job", job_id=job.id)
    send_command(system.redis, "one", "stop-job")
    send_command(system.redis, "one", "stop-execution", job_id=job.id)
    send_command(system.redis, "one", "stop-execution", job_id=job.id, execution_id="of an earlier run")
    wait_until(lambda: finished(job), "it has ended as if nothing was said")
    assert finished(done)
    assert process.poll() is None


@OF_EACH_RQ
def test_rq_suspend_and_resume(system: System) -> None:
    process = start(system)
    wait_until(lambda: Worker.count(connection=system.redis) == 1, "the worker is up", STARTED)
    rq(system, "suspend")
    job = queue(system).enqueue(shop.add, 1, 1)
    time.sleep(1)
    assert (job.get_status(), queue(system).job_ids) == ("queued", [job.id])
    rq(system, "resume")
    wait_until(lambda: finished(job), "the job has run")
    assert process.poll() is None


@OF_EACH_RQ
def test_rq_empty_and_requeue(system: System) -> None:
    waiting = [queue(system).enqueue(shop.add, 1, 1) for _ in range(3)]
    assert "3 jobs removed from default queue" in rq(system, "empty", "default")
    failing = queue(system).enqueue(shop.fail_times, "rq:program:times", 1)
    assert ended(start(system, "--burst")) == 0
    assert failing.get_status() == "failed"
    assert not any(Job.exists(each.id, system.redis) for each in waiting)
    rq(system, "requeue", "--queue", "default", failing.id)
    assert ended(start(system, "--burst")) == 0
    assert finished(failing)


@OF_EACH_RQ
def test_rq_cron_enqueues_and_the_worker_runs(system: System, tmp_path: Path) -> None:
    config = tmp_path / "cron.py"
    config.write_text(
        "from rq import cron\nfrom tests.support import rq_functions as shop\n"
        "cron.register(shop.note, queue_name='default', args=('rq:program:cron', 'x'), interval=1)\n"
    )
    start(system)
    system.start("rq.cli", "cron", "--url", system.url, str(config))
    wait_until(lambda: system.redis.llen("rq:program:cron") >= 2, "two have run", STARTED)


def rq(system: System, *command: str) -> str:
    arguments = [sys.executable, "-m", "rq.cli", *command, "--url", system.url]
    env = {**os.environ, **system.environment}
    return subprocess.run(arguments, cwd=ROOT, env=env, capture_output=True, text=True, timeout=60, check=True).stdout


def test_executors_set_django_up(system: System) -> None:
    job = queue(system).enqueue(shop.django_is_ready)
    system.environment["DJANGO_SETTINGS_MODULE"] = "tests.support.django_project.settings"
    assert ended(start(system, "--burst")) == 0
    assert job.return_value() is True


@OF_EACH_RQ
def test_a_pool_of_these_workers(system: System) -> None:
    jobs = [queue(system).enqueue(shop.add, 1, number) for number in range(10)]
    arguments = ("--url", system.url, "-n", "2", "-w", "firmq.rq.Worker", "--burst", "default")
    assert ended(system.start("rq.cli", "worker-pool", *arguments)) == 0
    assert all(map(finished, jobs))


def test_a_program_that_calls_work(system: System) -> None:
    before = signal.getsignal(signal.SIGTERM)
    job = queue(system).enqueue(shop.add, 1, 1)
    worker: Any = OurWorker([queue(system)], connection=system.redis)
    assert worker.work(burst=True) is True
    assert finished(job)
    assert worker.work(burst=True) is False
    assert signal.getsignal(signal.SIGTERM) is before


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"exception_handlers": [print]}, "has no exception_handlers: use on_failure"),
        ({"work_horse_killed_handler": print}, "has no work_horse_killed_handler"),
        ({"disable_default_exception_handler": True}, "always in the FailedJobRegistry"),
        ({"job_class": type("Own", (Job,), {})}, "runs RQ's own Job and Queue"),
        ({"queue_class": type("OwnQueue", (Queue,), {})}, "runs RQ's own Job and Queue"),
        (
            {"serializer": type("Own", (), {"dumps": staticmethod(repr), "loads": staticmethod(eval)})},
            "JSONSerializer only",
        ),
    ],
)
def test_what_it_cannot_do_is_refused(redis_client: Redis, options: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        OurWorker(["default"], connection=redis_client, **options)


@pytest.mark.parametrize(
    ("connection", "url"),
    [
        (Redis(), "redis://localhost:6379/0"),
        (Redis("::1", 1234, 5), "redis://[::1]:1234/5"),
        (Redis(username="a@b", password=ODD), f"redis://a%40b:{quote(ODD, safe='')}@localhost:6379/0"),
        (Redis(password="secret", unix_socket_path="/run/r.sock", db=2), "unix://:secret@/run/r.sock?db=2"),
        (Redis(host="r", ssl=True), "rediss://r:6379/0"),
        (Redis(host="r", ssl=True, ssl_cert_reqs="none"), "rediss://r:6379/0?ssl_cert_reqs=none"),
    ],
)
def test_the_address_is_that_of_the_programs_connection(connection: Redis, url: str) -> None:
    assert address_of(connection) == url


def test_a_connection_of_sentinel_is_refused() -> None:
    with pytest.raises(ValueError, match="start `firmq worker --rq`"):
        address_of(Sentinel([("127.0.0.1", 1)]).master_for("main"))


def test_terms_reach_one_process_only(monkeypatch: pytest.MonkeyPatch) -> None:
    terms = Terms(burst=True, max_jobs=3, scheduler=False, strategy="random")
    monkeypatch.setenv(VARIABLE, terms.as_variable()[VARIABLE])
    assert Terms.of_environment() == terms
    assert Terms.of_environment() == Terms()
