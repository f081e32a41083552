"""What the RQ program of the laboratory enqueues: functions that write down that they ran, and callbacks that do."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from datetime import UTC
from typing import Any

from rq import Callback, Queue

ALLOWED = "tests.labs.rq_jobs.program.*"
KEPT = 24 * 3600
CALLBACK_OF = {"with-callback": "success", "failing": "failure"}
"""The kinds of jobs with callbacks, and which one is to be called."""
KINDS = ("plain", "plain", "plain", "plain", "slow", "current", "with-callback", "failing")


def kind_of(number: int) -> str:
    return KINDS[number % len(KINDS)]


def note(what: str, number: object) -> None:
    """Adds a line to the file of what happened, which outlives each process."""
    file = os.open(os.environ["RQ_LAB_NOTES"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(file, f"{what} {number}\n".encode())
    os.close(file)


def plain(number: int) -> int:
    note("ran", number)
    return number


def slow(number: int) -> int:
    note("ran", number)
    time.sleep(0.06)
    return number


def current(number: int) -> int:
    from rq import get_current_job

    note("ran", number)
    job: Any = get_current_job()
    job.meta["number"] = number
    job.save_meta()
    return number


def of_entry(name: str) -> None:
    """Notes when its job was enqueued: one that runs again after a kill was enqueued once."""
    from rq import get_current_job

    job: Any = get_current_job()
    note("entry", f"{name} {job.enqueued_at.replace(tzinfo=UTC).timestamp()}")


def failing(number: int) -> None:
    note("ran", number)
    raise ValueError(number)


def succeeded(job: Any, connection: Any, result: Any, *more: Any) -> None:
    note("success", job.args[0])


def failed(job: Any, connection: Any, *error: Any) -> None:
    note("failure", job.args[0])


def job_id(number: int) -> str:
    return f"job-{number}"


def enqueue(queue: Queue, numbers: Iterable[int]) -> None:
    """Enqueues a job of its kind for each number."""
    functions = {"plain": plain, "slow": slow, "current": current, "with-callback": plain, "failing": failing}
    queue.enqueue_many(
        Queue.prepare_data(
            functions[kind_of(number)],
            (number,),
            job_id=job_id(number),
            result_ttl=KEPT,
            failure_ttl=KEPT,
            on_success=Callback(succeeded) if kind_of(number) == "with-callback" else None,
            on_failure=Callback(failed) if kind_of(number) == "failing" else None,
        )
        for number in numbers
    )
