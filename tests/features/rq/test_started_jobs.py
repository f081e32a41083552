"""A job that runs for a moment is shown as started, once, and never after its end."""

from __future__ import annotations

import threading
import time

import pytest
from redis.exceptions import ConnectionError

from firmq.worker.features.rq import started_jobs
from firmq.worker.features.rq.started_jobs import UNCERTAIN, StartedJobs
from tests.support.harness import wait_until


class Shown:
    def __init__(self, error: Exception | None = None) -> None:
        self.times = 0
        self.error = error

    def __call__(self) -> str:
        self.times += 1
        if self.error:
            raise self.error
        return "x1"


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> StartedJobs:
    monkeypatch.setattr(started_jobs, "MOMENT", 0.001)
    watch = StartedJobs()
    watch.start()
    return watch


def test_a_job_that_runs_on_is_shown_once(started: StartedJobs) -> None:
    shown = Shown()
    started.begin(shown)
    wait_until(lambda: shown.times, "it is shown")
    time.sleep(0.02)
    assert started.end() == "x1"
    assert (shown.times, started.end()) == (1, "")


def test_a_job_that_has_ended_is_not_shown(started: StartedJobs) -> None:
    shown = Shown()
    started.begin(shown)
    first = started.end()
    times = shown.times
    time.sleep(0.02)
    assert (shown.times, bool(first)) == (times, bool(times))


def test_the_end_waits_for_what_is_being_written(started: StartedJobs) -> None:
    writing, go_on = threading.Event(), threading.Event()

    def show() -> str:
        writing.set()
        go_on.wait()
        return "x2"

    started.begin(show)
    assert writing.wait(10)
    threading.Timer(0.05, go_on.set).start()
    assert started.end() == "x2"


def test_an_error_of_redis_leaves_the_end_to_the_code_of_rq(started: StartedJobs) -> None:
    shown = Shown(ConnectionError("away"))
    started.begin(shown)
    wait_until(lambda: shown.times, "it was tried")
    assert started.end() == UNCERTAIN
    assert shown.times == 1


def test_a_thread_that_rests_wakes_for_the_next_job(started: StartedJobs) -> None:
    wait_until(lambda: started._asleep, "it rests")
    shown = Shown()
    started.begin(shown)
    wait_until(lambda: shown.times, "it is shown")
    started.end()
