"""Workers that run handlers in the context of a Flask app."""

from __future__ import annotations

import json
from typing import Any

import pytest

from firmq.shared.domain.task import TaskState
from tests.support.harness import System, wait_until

MODULES = {"TASK_MODULES": "firmq.flask.worker", "WORKER_EXECUTORS": "1", "CONCURRENT_EXECUTORS": "1"}


def orders(*numbers: int) -> list[tuple[str, str]]:
    """Tasks of all kinds for each order."""
    kinds = ("serial", "threads", "async")
    return [(f"flask-{kind}", json.dumps({"order": number})) for kind in kinds for number in numbers]


@pytest.mark.parametrize(
    ("app", "sender"),
    [("tests.support.flask_project", "Shop"), ("tests.support.flask_project:create_app('Inn')", "Inn")],
)
def test_handlers_of_all_kinds_run_in_the_app(system: System, app: str, sender: str) -> None:
    system.start_worker(FLASK_APP=app, **MODULES)
    tasks = system.submit_many(orders(1, 2, 3))
    results: list[Any] = [system.ended(each).result for each in tasks]
    assert {result[0] for result in results} == {sender}
    assert [result[2] for result in results] == [
        f"{json.loads(data)['order']} {kind}" for kind, data in orders(1, 2, 3)
    ]
    names = [result[1] for result in results]
    assert {*names[:3], *names[6:]} == {"MainThread"}
    assert "MainThread" not in names[3:6]
    for each in tasks:
        [attempt] = system.ended(each).attempts
        assert any(line.endswith("ends with None") for line in attempt.logs), attempt.logs


def test_a_failure_reaches_the_context_and_shows_the_handler_alone(system: System) -> None:
    system.start_worker(FLASK_APP="tests.support.flask_project", **MODULES)
    task = system.ended(system.submit("flask-serial", '{"order": -1}'))
    assert task.summary.state is TaskState.FAILED
    [attempt] = task.attempts
    assert any("context of -1 ends with ValueError('no order -1')" in line for line in attempt.logs)
    assert attempt.error is not None
    assert "flask_project.py" in str(attempt.error.traceback)
    assert "registry.py" not in str(attempt.error.traceback)


@pytest.mark.parametrize(
    ("app", "told"),
    [
        ("tests.support.flask_projekt", "flask_projekt"),
        ("tests.support.handlers", "Failed to find Flask application or factory in module 'tests.support.handlers'"),
        (
            "tests.support.flask_project:create_bare_app",
            "the app 'bare' has no Firmq: call Firmq(app), or init_app(app)",
        ),
    ],
)
def test_a_worker_without_a_usable_app_does_not_start(system: System, app: str, told: str) -> None:
    worker = system.start("worker", FLASK_APP=app, **MODULES)
    wait_until(lambda: worker.poll() is not None, "the worker ended")
    assert worker.returncode == 2
    assert "firmq.flask.worker cannot be imported" in system.logs()
    assert told in system.logs()
