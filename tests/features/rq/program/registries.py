"""What RQ's page on job registries shows."""

from __future__ import annotations

import subprocess
import sys

from rq.job import Job
from rq.registry import FailedJobRegistry, FinishedJobRegistry, StartedJobRegistry

from tests.features.rq.program.rows import FAILED, FINISHED, QUEUE, Program, feature
from tests.support import rq_functions as shop


@feature("registries of finished and started jobs", [True, 0])
def registries(program: Program) -> object:
    found = program.queue.enqueue(shop.add, 1, 1)
    program.end(found)
    started = [each for each in StartedJobRegistry(queue=program.queue).get_job_ids() if each == found.id]
    return [found.id in FinishedJobRegistry(queue=program.queue).get_job_ids(), len(started)]


@feature("`StartedJobRegistry` of a job that runs", True)
def started(program: Program) -> object:
    with program.until_then() as file:
        found = program.queue.enqueue(shop.until_there, file)
        program.end(found, "started")
        return found in StartedJobRegistry(queue=program.queue)


@feature("`job.requeue()` of a failed job", [FAILED, FINISHED])
def requeue(program: Program) -> object:
    found = program.queue.enqueue(shop.fail_times, "rq:program:requeued", 1)
    first = program.end(found)
    found.requeue()
    return [first, program.end(found, FINISHED)]


@feature("`registry.requeue(job_id)`, `rq requeue`", [FINISHED, FINISHED])
def requeue_otherwise(program: Program) -> object:
    jobs = [program.queue.enqueue(shop.fail_times, f"rq:program:otherwise-{each}", 1) for each in range(2)]
    for each in jobs:
        program.end(each, FAILED)
    FailedJobRegistry(queue=program.queue).requeue(jobs[0].id)
    command = [sys.executable, "-m", "rq.cli", "requeue", "--url", program.url, "--queue", QUEUE, jobs[1].id]
    subprocess.run(command, check=True, capture_output=True)
    return [program.end(each, FINISHED) for each in jobs]


@feature("`registry.remove(job, delete_job=True)`", [False, False])
def remove(program: Program) -> object:
    found = program.queue.enqueue(shop.fail)
    program.end(found)
    registry = FailedJobRegistry(queue=program.queue)
    registry.remove(found, delete_job=True)
    return [found.id in registry.get_job_ids(), Job.exists(found.id, connection=program.redis)]
