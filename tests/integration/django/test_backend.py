"""Django's tasks run on workers, with their results, errors, signals and database connections."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from firmq import Client, TaskState
from tests.integration.client.conftest import Running
from tests.support.harness import wait_until

pytestmark = pytest.mark.usefixtures("running")


@pytest.fixture
def tasks(django_project: str) -> Any:
    """The module with the project's tasks."""
    from tests.support.django_project import tasks

    return tasks


def ended(result: Any) -> Any:
    """The result once its task has ended."""

    def is_finished() -> bool:
        result.refresh()
        return bool(result.is_finished)

    wait_until(is_finished, f"task {result.id} ended")
    return result


def test_a_task_runs_and_its_result_is_read(running: Running, tasks: Any) -> None:
    result = tasks.add.enqueue(1, b=2)
    assert (result.status, result.attempts, result.args, result.kwargs) == ("READY", 0, [1], {"b": 2})
    ended(result)
    assert (result.status, result.return_value, result.errors) == ("SUCCESSFUL", 3, [])
    assert result.enqueued_at <= result.started_at == result.last_attempted_at <= result.finished_at
    with Client(running.url) as client:
        [attempt] = client.get(result.id).attempts
    assert result.worker_ids == [attempt.worker]
    assert tasks.add.get_result(result.id) == result


def test_a_coroutine_function_runs_in_the_concurrent_executor(running: Running, tasks: Any) -> None:
    async def both() -> list[Any]:
        return list(await asyncio.gather(*(tasks.add_async.aenqueue(n, 1) for n in range(10))))

    results = asyncio.run(both())
    assert [ended(each).return_value for each in results] == list(range(1, 11))
    with Client(running.url) as client:
        assert {client.get(each.id).type for each in results} == {tasks.add_async.module_path}
    assert asyncio.run(tasks.add_async.aget_result(results[0].id)) == results[0]


def test_the_context_says_which_attempt_runs_where(tasks: Any) -> None:
    result = ended(tasks.about.enqueue())
    assert result.return_value == {
        "id": result.id,
        "attempt": 1,
        "status": "RUNNING",
        "workers": result.worker_ids,
    }


def test_a_failed_attempt_is_retried_and_its_error_kept(tasks: Any) -> None:
    result = ended(tasks.fail_once.enqueue())
    assert (result.status, result.return_value, result.attempts) == ("SUCCESSFUL", "done", 2)
    [error] = result.errors
    assert error.exception_class is tasks.Overloaded
    assert error.traceback.endswith("Overloaded: not yet\n")
    assert result.started_at < result.last_attempted_at


@pytest.mark.parametrize(
    "message",
    ["", "no", "two\nlines", "tests.other.Overloaded: no", "é" * 3000, "a\nbuiltins.Overloaded: a"],
    ids=["empty", "plain", "lines", "disguised", "long", "repeated"],
)
def test_the_class_of_an_error_is_found(tasks: Any, message: str) -> None:
    result = ended(tasks.fail.using(backend="patient").enqueue(message))
    assert (result.status, result.attempts) == ("FAILED", 1)
    assert [error.exception_class for error in result.errors] == [tasks.Overloaded]
    with pytest.raises(ValueError, match="failed"):
        assert result.return_value


def test_options_of_the_backend_apply_to_its_tasks(running: Running, tasks: Any) -> None:
    result = ended(tasks.fail_async.using(backend="patient").enqueue())
    assert (result.status, result.attempts, result.backend) == ("FAILED", 1, "patient")
    assert result.errors[0].exception_class is tasks.Overloaded
    with Client(running.url) as client:
        assert client.get(result.id).tags == ("patient",)


def test_a_value_without_json_form_is_an_error_that_is_not_retried(tasks: Any) -> None:
    result = ended(tasks.return_lambda.enqueue())
    assert (result.status, result.attempts) == ("FAILED", 1)
    assert result.errors[0].exception_class is TypeError


def test_run_after_delays_a_task(running: Running, tasks: Any) -> None:
    due = datetime.now(UTC) + timedelta(hours=1)
    result = tasks.add.using(run_after=due).enqueue(1)
    with Client(running.url) as client:
        found = client.get(result.id)
        assert (found.status, found.next_attempt_at) == (TaskState.SCHEDULED, due)
        assert tasks.add.get_result(result.id).task.run_after == due
        client.cancel(result.id, "changed my mind")
    result.refresh()
    assert (result.status, [error.traceback for error in result.errors]) == ("FAILED", ["changed my mind"])


@pytest.mark.parametrize(
    ("priority", "queue"), [(100, "critical"), (50, "critical"), (1, "high"), (0, "normal"), (-1, "low"), (-100, "low")]
)
def test_priorities_choose_the_queue(running: Running, tasks: Any, priority: int, queue: str) -> None:
    result = tasks.add.using(priority=priority).enqueue(1)
    with Client(running.url) as client:
        assert client.get(result.id).queue == queue
    assert tasks.add.get_result(result.id).task.priority == priority


def test_a_queue_name_chooses_the_queue(running: Running, tasks: Any) -> None:
    from firmq.django.framework import InvalidTask

    for name in ("critical", "reports"):
        result = tasks.add.using(queue_name=name).enqueue(1)
        with Client(running.url) as client:
            assert client.get(result.id).queue == name
    with pytest.raises(InvalidTask, match="must be 1 to 64 characters"):
        tasks.add.using(queue_name="not a name").enqueue(1)
    with pytest.raises(InvalidTask, match="have no priorities: use queue 'default', or priority 0"):
        tasks.add.using(queue_name="critical", priority=1)


def test_signals_are_sent_in_the_worker_and_cannot_fail_a_task(tasks: Any) -> None:
    first = ended(tasks.add.enqueue(1))
    seen = ended(tasks.signals_seen.enqueue()).return_value
    assert [line.split(" ", 1)[1] for line in seen if first.id in line] == [
        f"{first.id} RUNNING",
        f"{first.id} SUCCESSFUL",
    ]


def test_connections_past_their_age_are_closed_between_tasks(tasks: Any) -> None:
    ended(tasks.age_connection.enqueue())
    assert ended(tasks.connection_is_open.enqueue()).return_value is False
    assert ended(tasks.count_users.enqueue()).return_value == 0
    assert ended(tasks.connection_is_open.enqueue()).return_value is True, "one that is well is kept"
    assert ended(tasks.count_users_async.enqueue()).return_value == 0


def test_handlers_beside_the_tasks_of_django_run_on_the_same_worker(running: Running, tasks: Any) -> None:
    task = tasks.count_users_handler.submit()
    with Client(running.url) as client:
        assert client.result(task.task_id, 60) == 0


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("tests.support.django_project.tasks.not_a_task", "is not a task: decorate the function"),
        ("tests.support.django_project.tasks.none", "cannot be imported"),
        ("os.system", "is not a task"),
        ("this.s", "is in none of INSTALLED_APPS: install its app, or add this to TASK_MODULES"),
        ("some text", "is in none of INSTALLED_APPS: install its app, or give its path"),
    ],
)
def test_only_tasks_of_installed_apps_are_found(path: str, text: str) -> None:
    from firmq.django.call import find_task
    from firmq.django.framework import InvalidTask

    with pytest.raises(InvalidTask, match=text):
        find_task(path)


def test_a_task_of_a_backend_that_is_gone_is_not_retried(running: Running, tasks: Any) -> None:
    with Client(running.url) as client:
        task = client.submit(tasks.add.module_path, {"args": [1], "backend": "gone"})
        client.wait(task.task_id, 60)
        found = client.get(task.task_id)
    assert (found.status, found.attempt) == (TaskState.FAILED, 1)
    assert found.error
    assert "gone" in found.error.message


def test_a_function_is_a_type_with_options_of_its_own(running: Running, tasks: Any) -> None:
    path = tasks.with_options.module_path
    with Client(running.url) as client:
        found = {name: client.types.get(name).data_schema for name in (path, tasks.add.module_path)}
        result = ended(tasks.with_options.enqueue())
        assert (result.status, result.attempts) == ("FAILED", 1), "max_retries"
        [dead] = [each for each in client.dead_letters if each.task_id == result.id]
        assert dead.type == path
        first = found[tasks.add.module_path]["examples"][0]
        assert first == {"kwargs": {"a": 1}}
        assert client.result(client.submit(tasks.add.module_path, first).task_id, 60) == 2, "the example of the schema"


def test_options_are_checked_where_they_are_given() -> None:
    from firmq.django import handler_options

    with pytest.raises(TypeError, match="unexpected keyword argument 'retries'"):
        handler_options(retries=3)


def test_results_of_other_tasks_do_not_exist(running: Running, tasks: Any) -> None:
    from firmq.django.framework import TaskResultDoesNotExist

    with Client(running.url) as client:
        task = client.submit("count-users", {})
    for task_id in (task.task_id, "none"):
        with pytest.raises(TaskResultDoesNotExist):
            tasks.add.get_result(task_id)
