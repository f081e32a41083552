"""The current job of a function that mostly does not ask for it."""

from __future__ import annotations

import pickle
import zlib
from typing import Any

import pytest
from redis import Redis
from rq.job import Job, JobStatus

from firmq.worker.features.rq.allowed import Allowed, JobRefused
from firmq.worker.features.rq.checked_job import CheckedJob, LazyJob, Outcome, checked_job

CALL: tuple[Any, ...] = ("operator.add", None, (1, 2), {})
RECORD = {b"data": zlib.compress(pickle.dumps(CALL)), b"status": b"queued", b"origin": b"imports"}
NAMES = ["operator.add", "_operator.add"]


class Reads:
    """Counts how often a job is read."""

    def __init__(self, patterns: list[str] = NAMES) -> None:
        self.count = 0
        self.allowed = Allowed(patterns, pickles=True)

    def __call__(self) -> CheckedJob:
        self.count += 1
        return checked_job(Redis(), self.allowed, "a", RECORD)


def test_a_job_is_read_at_its_first_use_and_only_then() -> None:
    reads = Reads()
    job = LazyJob(reads)
    assert isinstance(job, Job)
    assert reads.count == 0
    assert (job.id, job.origin, job.args, job.get_status(refresh=False)) == ("a", "imports", (1, 2), JobStatus.QUEUED)
    assert reads.count == 1
    assert type(job) is CheckedJob


def test_what_is_set_first_is_kept() -> None:
    job = LazyJob(Reads())
    job.meta = {"order": 7}
    assert (job.meta, job.id) == ({"order": 7}, "a")


def test_a_job_that_is_not_allowed_is_not_read() -> None:
    job = LazyJob(Reads([]))
    for _ in range(2):
        with pytest.raises(JobRefused):
            job.outcome = Outcome(0, 1)


def test_the_code_of_rq_gets_the_outcome_of_a_function_that_has_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Redis, "persist", lambda *arguments: None)
    job = Reads()()
    assert job.perform() == 3
    job.outcome = Outcome(0, "other")
    assert job.perform() == "other"
    job.outcome = Outcome(0, None, ValueError("no stock"))
    with pytest.raises(ValueError, match="no stock"):
        job.perform()
