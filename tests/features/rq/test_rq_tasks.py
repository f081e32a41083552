"""Tasks of the type `rq`: real jobs of RQ, which any RQ worker runs, each enqueued once."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from redis import Redis
from redis.exceptions import ConnectionError
from rq import Queue
from rq.job import Job
from rq.registry import CanceledJobRegistry, FailedJobRegistry

from firmq.shared import failpoints
from firmq.shared.domain.task import ErrorInfo, TaskState
from firmq.shared.local.embedded_redis import EmbeddedRedis
from firmq.worker.handlers.signals import TaskSuspended
from tests.support import rq_functions as shop
from tests.support.harness import System, wait_until
from tests.support.rq_versions import VERSIONS, environment

SHOP = shop.__name__
OFFERING = {"RQ_TASK_QUEUES": "imports,mail", "RQ_ALLOW": f"{SHOP}.*,operator.add,datetime.date"}
ADOPTING = {"RQ_QUEUES": "imports", "RQ_TASK_QUEUES": "imports", "RQ_ALLOW": f"{SHOP}.*", "RQ_PICKLE": "true"}

Start = Callable[..., object]


def submit(system: System, func: str, *args: object, retries: int = 0, **data: object) -> str:
    call = {"func": func if "." in func else f"{SHOP}.{func}", "args": args, **data}
    return system.submit("rq", json.dumps(call), retry={"max_retries": retries})


def queue(system: System, name: str = "imports") -> Any:
    return Queue(name, connection=system.redis)


def job_of(system: System, task: str, number: int = 1) -> Job:
    return Job.fetch(f"rq-{task}-{number}", connection=system.redis)


def wait_for_job(system: System, task: str, number: int = 1) -> Job:
    """The job of a task that waits for it."""
    key = system.scripts.keys.rq_job(f"rq-{task}-{number}")
    wait_until(lambda: system.redis.exists(key), "the job is there")
    wait_until(lambda: system.records.state(task) is TaskState.SCHEDULED, "the task waits")
    return job_of(system, task, number)


def error_of(system: System, task: str) -> ErrorInfo:
    """The error of a task that has ended as failed."""
    found = system.ended(task)
    assert found.summary.state is TaskState.FAILED
    assert found.attempts[-1].error is not None
    return found.attempts[-1].error


@pytest.fixture
def start_stock(system: System, redis_server: EmbeddedRedis) -> Start:
    """Starts RQ's own worker, with the rights that it needs."""
    return lambda *names: system.start("rq.cli", "worker", "--url", redis_server.url, *(names or ("imports",)))


@pytest.mark.parametrize("version", VERSIONS)
def test_a_stock_worker_runs_the_job_and_the_task_has_its_result(
    system: System, start_stock: Start, version: str
) -> None:
    system.environment |= environment(version)
    system.as_shipped = version != VERSIONS[-1]
    system.start_housekeeper()
    system.start_worker(**OFFERING)
    sums = [submit(system, "add", number, 1) for number in range(3)]
    mail = submit(system, "operator.add", [1], [2], queue="mail", ttl=600)
    waiting = [wait_for_job(system, task) for task in (*sums, mail)]
    assert sorted(queue(system).job_ids) == sorted(each.id for each in waiting[:3])
    assert queue(system, "mail").job_ids == [waiting[3].id]
    assert Queue.all(connection=system.redis)
    start_stock("imports", "mail")
    assert [system.ended(task).result for task in (*sums, mail)] == [1, 2, 3, [1, 2]]
    assert all(each.get_status() == "finished" for each in waiting)


@pytest.mark.parametrize("version", VERSIONS)
def test_our_worker_runs_the_job_and_no_executor_waits_for_it(system: System, version: str) -> None:
    system.environment |= environment(version)
    system.as_shipped = version != VERSIONS[-1]
    system.start_housekeeper()
    system.start_worker(**ADOPTING)  # one executor
    tasks = [submit(system, "add", number, 1) for number in range(20)]
    assert [system.ended(task).result for task in tasks] == list(range(1, 21))


@pytest.mark.parametrize("pickles", ["true", "false"])
def test_the_job_is_in_the_serializer_that_its_workers_read(system: System, pickles: str) -> None:
    system.start_housekeeper()
    system.start_worker(**ADOPTING | {"RQ_PICKLE": pickles})
    assert system.ended(submit(system, "add", 1, 1)).result == 2


def test_a_failed_job_is_retried_as_a_new_job_and_becomes_a_dead_letter(system: System, start_stock: Start) -> None:
    system.start_housekeeper()
    system.start_worker(**OFFERING)
    start_stock()
    task = submit(system, "fail", retries=1)
    error = error_of(system, task)
    assert error.type.endswith("RqJobFailed")
    assert "Refund" in error.message
    assert "Traceback" in (error.traceback or "")
    assert len(FailedJobRegistry(queue=queue(system)).get_job_ids()) == 2
    system.dead_letters.requeue(task)
    wait_until(lambda: system.redis.exists(system.scripts.keys.rq_job(f"rq-{task}-3")), "a retry is a new job")


@pytest.mark.parametrize("point", ["executor.begin:1", "rq.enqueued:1", "executor.done:1", "executor.done:2"])
def test_the_job_is_enqueued_once_whatever_dies(system: System, start_stock: Start, tmp_path: Path, point: str) -> None:
    system.start_housekeeper()
    flag = tmp_path / "flag"
    system.start_worker(**OFFERING, **{failpoints.VARIABLE: f"{point}:kill:{flag}"})
    task = submit(system, "add", 1, 1)
    wait_until(flag.exists, "an executor was killed")
    job = wait_for_job(system, task)
    assert queue(system).job_ids == [job.id]
    start_stock()
    assert system.ended(task).result == 2
    assert not system.redis.exists(system.scripts.keys.rq_job(f"rq-{task}-2"))


def test_a_cancelled_task_cancels_its_job_and_runs_again_when_it_is_restored(system: System) -> None:
    worker = system.start_worker(**OFFERING)
    task = submit(system, "add", 1, 1)
    job = wait_for_job(system, task)
    system.queues.cancel(task, "not needed")
    assert job.get_status() == "canceled"
    assert queue(system).job_ids == []
    assert CanceledJobRegistry(queue=queue(system)).get_job_ids() == [job.id]
    assert worker.poll() is None


def test_a_job_that_its_task_has_not_noted_is_cancelled_with_it(system: System, tmp_path: Path) -> None:
    flag = tmp_path / "flag"
    system.start_worker(**OFFERING, **{failpoints.VARIABLE: f"rq.enqueued:1:freeze:{flag}"})
    task = submit(system, "add", 1, 1)
    wait_until(flag.exists, "an executor is stopped")
    assert queue(system).job_ids == [f"rq-{task}-1"]
    system.queues.cancel(task, "not needed")
    wait_until(lambda: system.records.state(task) is TaskState.CANCELLED, "the task is cancelled", 30)
    assert (job_of(system, task).get_status(), queue(system).job_ids) == ("canceled", [])


class Lost:
    """RQ's queue at a Redis that does as it is told, and whose answer is lost."""

    def __init__(self, queue: Any) -> None:
        self.queue = queue

    def enqueue_call(self, *args: Any, **options: Any) -> None:
        self.queue.enqueue_call(*args, **options)
        raise ConnectionError("the answer was lost")


def test_a_lost_answer_is_no_failed_attempt_and_the_job_is_enqueued_once(
    redis_client: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    from firmq.worker.features.rq import rq_task  # here: it reads the environment when it is imported

    stored: list[Any] = []
    steps = SimpleNamespace(
        begin=lambda name: stored and SimpleNamespace(value=json.loads(json.dumps(stored[-1])), started_at=None),
        checkpoint=lambda name, value, since: stored.append(dict(value)),
        now_us=lambda: 0,
    )
    about = SimpleNamespace(id="T", recorder=SimpleNamespace(assignment=SimpleNamespace(limit=5)))
    monkeypatch.setattr(rq_task, "steps_of_current_task", lambda: steps)
    monkeypatch.setattr(rq_task, "current_task", lambda: about)
    monkeypatch.setattr(rq_task, "_connection", lambda: redis_client)
    monkeypatch.setattr(rq_task, "_QUEUES", ("imports",))
    monkeypatch.setattr(rq_task, "_ALLOW", ("operator.add",))
    call = rq_task.RqCall.model_validate({"func": "operator.add", "args": [1, 2], "queue": "imports"})
    with monkeypatch.context() as patch:
        patch.setattr(rq_task, "Queue", lambda *args, **options: Lost(Queue(*args, **options)))
        with pytest.raises(TaskSuspended):
            rq_task.rq_task(call)
    assert stored[-1]["job"] == "rq-T-1", "a cancel finds it"
    for _ in range(2):
        with pytest.raises(TaskSuspended, match="job rq-T-1 is queued in imports"):
            rq_task.rq_task(call)
    assert Queue("imports", connection=redis_client).job_ids == ["rq-T-1"]


@pytest.mark.parametrize(
    ("func", "why"),
    [
        (f"{SHOP}.os.getpid", "posix.getpid, does not match RQ_ALLOW"),
        (f"{SHOP}.missing", "does not exist in this worker's environment"),
        ("os.getpid", "does not match RQ_ALLOW"),
    ],
)
def test_a_function_that_a_pattern_matches_by_chance_is_refused(system: System, func: str, why: str) -> None:
    system.start_worker(**OFFERING)
    assert why in error_of(system, submit(system, func)).message
    assert not queue(system).job_ids


def test_what_is_not_json_is_named_and_the_task_is_completed(system: System, start_stock: Start) -> None:
    system.start_housekeeper()
    system.start_worker(**OFFERING)
    start_stock()
    order, day = submit(system, "Order", 7), submit(system, "datetime.date", 2026, 2, 1)
    result: Any = system.ended(order).result
    assert result["job"] == f"rq-{order}-1"
    assert f"{SHOP}.Order does not match RQ_ALLOW" in result["unreadable"]
    assert system.ended(day).result == "2026-02-01"


def test_a_job_that_was_removed_with_rq_ends_the_task(system: System) -> None:
    system.start_housekeeper()
    system.start_worker(**OFFERING)
    deleted, cancelled = submit(system, "add", 1, 1), submit(system, "add", 1, 1)
    wait_for_job(system, deleted).delete()
    wait_for_job(system, cancelled).cancel()
    for task, why in ((deleted, "deleted"), (cancelled, "canceled")):
        assert why in error_of(system, task).message
