"""What RQ's page on jobs shows."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import Any

from rq import Queue, cancel_job
from rq.command import send_stop_job_command
from rq.job import Job
from rq.serializers import JSONSerializer

from tests.features.rq.program.rows import FAILED, FINISHED, QUEUE, Program, feature
from tests.support import rq_functions as shop


@feature("`Job.create`, `queue.enqueue_job`", [FINISHED, 4])
def create(program: Program) -> object:
    found = Job.create(shop.add, (2, 2), connection=program.redis, timeout=120, result_ttl=600)
    return program.result(program.queue.enqueue_job(found))


@feature("ids of the program's own, `Job.fetch`, `Job.fetch_many`", [FINISHED, 4, 1])
def own_id(program: Program) -> object:
    program.queue.enqueue(shop.add, 2, 2, job_id="order-7")
    found = Job.fetch("order-7", connection=program.redis)
    return [*program.result(found), len(Job.fetch_many(["order-7"], connection=program.redis))]


@feature(
    "`started_at`, `ended_at`, `worker_name`, `origin`, `args` of a job that has ended", [True, True, True, QUEUE, 2]
)
def attributes(program: Program) -> object:
    found = program.queue.enqueue(shop.add, 1, 2)
    program.end(found)
    found.refresh()
    began, ended = found.started_at, found.ended_at
    return [began <= ended, found.enqueued_at <= began, bool(found.worker_name), found.origin, len(found.args)]


@feature(
    "status `started`, `get_executions()`, `last_heartbeat` of a job that runs",
    ["started", 1, True],
    differs="from about 30 ms on, or from the job's first use of `get_current_job()`",
)
def executions(program: Program) -> object:
    with program.until_then() as file:
        found = program.queue.enqueue(shop.until_there, file)
        status = program.end(found, "started")
        found.refresh()
        return [status, len(found.get_executions()), bool(found.last_heartbeat)]


@feature("`get_current_job()`, `job.meta`, `save_meta()`", [FINISHED, True, {"progress": 0.5, "order": 7}])
def meta(program: Program) -> object:
    found = program.queue.enqueue(shop.with_meta, meta={"order": 7})
    status, result = program.result(found)
    return [status, result == found.id, found.get_meta()]


@feature(
    "`send_stop_job_command`, `on_stopped`",
    FINISHED,
    differs="as in RQ with `firmq.rq.Worker`; else no effect: cancel the task, and the job is canceled",
)
def stop(program: Program) -> object:
    with program.until_then() as file:
        found = program.queue.enqueue(shop.until_there, file)
        program.end(found, "started")
        send_stop_job_command(program.redis, found.id)
        time.sleep(1)
    return program.end(found)


@feature("`job.cancel()` of a scheduled job", ["canceled", None])
def cancel(program: Program) -> object:
    found = program.queue.enqueue_in(timedelta(hours=1), shop.add, 1, 1)
    found.cancel()
    return program.result(found)


@feature(
    "`job.cancel()` of a job that waits",
    ["canceled", []],
    differs="the job is skipped, unless it starts within 0.2 s; its task completes",
)
def cancel_waiting(program: Program) -> object:
    with program.behind_others("cancelled") as waiting:
        waiting.cancel()
    time.sleep(3)
    return [program.status(waiting), program.noted("rq:program:cancelled")]


@feature("`cancel_job(..., enqueue_dependents=True)`", ["canceled", FINISHED])
def cancel_with_dependents(program: Program) -> object:
    parent = program.queue.enqueue_in(timedelta(hours=1), shop.add, 1, 1)
    child = program.queue.enqueue(shop.add, 1, 1, depends_on=parent)
    cancel_job(parent.id, connection=program.redis, enqueue_dependents=True)
    return [program.status(parent), program.end(child)]


@feature("`job.delete()` of a job that waits", [[], 0])
def delete(program: Program) -> object:
    with program.behind_others("deleted") as waiting:
        waiting.delete()
    time.sleep(3)
    return [program.noted("rq:program:deleted"), program.redis.exists(waiting.key)]


@feature("`serializer=JSONSerializer`, `serializer='json'`", [[FINISHED, 5], [FINISHED, 5]])
def json_serializer(program: Program) -> object:
    serializers: tuple[Any, ...] = (JSONSerializer, "json")
    queues = [Queue(QUEUE, connection=program.redis, serializer=each) for each in serializers]
    return [program.result(queue.enqueue(shop.add, 2, 3)) for queue in queues]


@feature(
    "any other serializer",
    [FAILED, True],
    refused="`its data cannot be read: JSONDecodeError`; use RQ's pickle or JSON",
)
def other_serializer(program: Program) -> object:
    queue = Queue(QUEUE, connection=program.redis, serializer=shop.ReprSerializer)
    return program.failure(queue.enqueue(shop.add, 2, 3), "its data cannot be read: JSONDecodeError")


@feature("`ttl` of a job that starts in time", [FINISHED, 5])
def ttl(program: Program) -> object:
    return program.result(program.queue.enqueue(shop.add, 2, 3, ttl=60))


@feature("`ttl` that ends before a job is due", [0, False])
def ttl_ends(program: Program) -> object:
    found = program.queue.enqueue_in(timedelta(seconds=3), shop.note, "rq:program:expired", "x", ttl=1)
    registry = program.queue.scheduled_job_registry
    program.seen(lambda: found.id not in registry.get_job_ids(cleanup=False))
    return [program.redis.exists("rq:program:expired"), found.id in registry.get_job_ids(cleanup=False)]


@feature("`job_timeout`, also as `'1s'`", [[FAILED, True], [FAILED, True]])
def timeout(program: Program) -> object:
    jobs = [program.queue.enqueue(shop.sleep, 30, job_timeout=each) for each in (1, "1s")]
    return [program.failure(each, "JobTimeoutException") for each in jobs]


@feature("`job_timeout=-1`", [FINISHED, 5])
def no_timeout(program: Program) -> object:
    return program.result(program.queue.enqueue(shop.add, 2, 3, job_timeout=-1))


class CustomJob(Job):
    """A class of the program."""

    def perform(self) -> Any:
        return "custom"


@feature("custom classes of jobs and queues", [FINISHED, 5], differs="the worker runs all jobs with RQ's own classes")
def custom_class(program: Program) -> object:
    queue = Queue(QUEUE, connection=program.redis, job_class=CustomJob)
    return program.result(queue.enqueue(shop.add, 2, 3))
