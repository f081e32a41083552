"""What RQ's page on exceptions and retries shows."""

from __future__ import annotations

from rq import Callback, Retry
from rq.job import Dependency, Job

from tests.features.rq.program.rows import FAILED, FINISHED, Program, feature
from tests.support import rq_functions as shop


@feature("`FailedJobRegistry`, `job.exc_info`", [FAILED, True, True])
def registry(program: Program) -> object:
    found = program.queue.enqueue(shop.fail)
    status = program.end(found)
    listed = found.id in program.queue.failed_job_registry.get_job_ids()
    return [status, listed, "Refund: no stock" in str(Job.fetch(found.id, connection=program.redis).exc_info)]


@feature("`Retry(max=2)`", [FINISHED, "at last"])
def retry(program: Program) -> object:
    return program.result(program.queue.enqueue(shop.fail_times, "rq:program:retried", 2, retry=Retry(max=2)))


@feature("`Retry(max=1)` of a job that fails more often", [FAILED, 2])
def retry_in_vain(program: Program) -> object:
    found = program.queue.enqueue(shop.fail_times, "rq:program:vain", 9, retry=Retry(max=1))
    return [program.end(found), int(program.redis.hget("rq:program:vain", "times"))]


@feature(
    "`Retry(max=2, interval=[1, 1])`",
    [FINISHED, "at last"],
    differs="the worker enqueues due jobs itself, unless an RQ scheduler holds the lock of the queue and does it",
)
def retry_later(program: Program) -> object:
    wanted = Retry(max=2, interval=[1, 1])
    return program.result(program.queue.enqueue(shop.fail_times, "rq:program:later", 2, retry=wanted))


@feature("`on_failure` of a job that is retried: at each failure", ["failure Refund not yet"])
def callback_and_retry(program: Program) -> object:
    found = program.queue.enqueue(
        shop.fail_times, "rq:program:callback", 1, retry=Retry(max=2), on_failure=Callback(shop.failed)
    )
    program.end(found, FINISHED)
    return program.called(found)


@feature(
    "`on_failure`, and dependents with `allow_failure`, of a job whose process always dies",
    [FAILED, FINISHED, True],
    differs="`on_failure` gets an `AbandonedJobError`, as after the death of an RQ worker",
)
def after_death(program: Program) -> object:
    found = program.queue.enqueue(shop.kill, on_failure=Callback(shop.failed))
    child = program.queue.enqueue(shop.add, 1, 1, depends_on=Dependency([found], allow_failure=True))
    ends = [program.end(found), program.end(child)]
    return [*ends, program.called(found)[0].startswith("failure AbandonedJobError")]
