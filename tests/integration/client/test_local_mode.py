"""Local mode gives the same results, errors and retries as a gateway and a worker."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from firmq.shared.client import (
    Client,
    ClientError,
    Conflict,
    NotFound,
    Problem,
    Progress,
    Refused,
    TaskFailed,
    new_task,
)
from firmq.shared.client.interface import TaskClient
from firmq.shared.config.settings import Settings
from firmq.worker.local import LocalClient
from tests.integration.client.conftest import Running

MODULES = ["firmq.worker.handlers.examples", "tests.support.handlers"]
SETTINGS = Settings(initial_retry_delay=0.05)
"""As the tests' workers have them."""

Case = Callable[[TaskClient], Any]


@pytest.fixture
def local() -> LocalClient:
    return LocalClient(MODULES, settings=SETTINGS)


def story(client: TaskClient, task_type: str, data: Any, **options: Any) -> Any:
    """How a task went: what everybody can see of it but times, ids and tracebacks."""
    task = client.submit(task_type, data, **options).task_id
    ended = client.wait(task, 60)
    shown = client.get(task)
    return (
        ended.status,
        ended.result,
        (ended.error.type, ended.error.message) if ended.error else None,
        [(each.number, each.outcome, each.retry_delay_seconds, _error(each)) for each in shown.attempts],
        (shown.attempt, shown.retry_count, shown.max_retries, shown.data, shown.tags, shown.queue),
    )


def _error(attempt: Any) -> Any:
    return (attempt.error.type, attempt.error.message) if attempt.error else None


def refused(client: TaskClient, task_type: str, data: Any, **options: Any) -> Any:
    """Why a task was not taken."""
    with pytest.raises(Refused) as why:
        client.submit(task_type, data, **options)
    return {name: said for name, said in why.value.document.items() if name not in ("instance", "request_id")}


def unlisted(problem: dict[str, Any]) -> dict[str, Any]:
    """Leaves out which types there are: here also those of other tests in this process."""
    found = {name: said for name, said in problem.items() if name not in ("known_types", "errors")}
    return {**found, "detail": problem["detail"].partition(": use one of")[0]}


def whole_batch(client: TaskClient) -> Any:
    feed = client.batch([new_task("echo", 0), new_task("nonsense", 1), new_task("fail", {}, max_retries=0)], name="all")
    items = list(feed)
    ends = [client.wait(each.task_id, 60).status for each in items if each.task_id]
    return feed.accepted, feed.refused, ends, [each.problem["type"] for each in items if each.problem]


def incomplete_batch(client: TaskClient) -> Any:
    items = client.batch([{"data": 1}, {"type": "echo"}, {}])
    return [(each.problem["type"], [at["field"] for at in each.problem["errors"]]) for each in items if each.problem]


def raised(kind: type[ClientError], act: Callable[[], object]) -> Any:
    with pytest.raises(kind) as why:
        act()
    return (why.value.type, why.value.status) if isinstance(why.value, Problem) else None


def failed(client: TaskClient) -> Any:
    task = client.submit("fail", {}, max_retries=0).task_id
    return raised(TaskFailed, lambda: client.result(task, 60))


def too_late_to_cancel(client: TaskClient) -> Any:
    done = client.submit("echo", 1).task_id
    client.wait(done, 60)
    return raised(Conflict, lambda: client.cancel(done))


CASES: dict[str, Case] = {
    "a value": lambda c: story(c, "echo", [1, 2.5, None, True, "ü", {"a": {}}], tags=["x"], priority="high"),
    "nothing": lambda c: story(c, "noop", None),
    "an example": lambda c: story(c, "process", "to be or not to be"),
    "a coroutine": lambda c: story(c, "async", 0.01),
    "retries with growing pauses": lambda c: story(c, "fail", {"message": "no luck"}),
    "no retries": lambda c: story(c, "fail", {}, max_retries=0),
    "a policy of its own": lambda c: story(
        c, "fail", {}, retry={"max_retries": 2, "initial_delay": 0.02, "multiplier": 3}
    ),
    "giving up": lambda c: story(c, "stubborn", "give up"),
    "a list of pauses": lambda c: story(c, "fail", {}, retry={"pauses": [0.02, 0.05]}),
    "an error not worth a retry": lambda c: story(c, "stubborn", "key"),
    "a later try": lambda c: story(c, "stubborn", "later"),
    "a result that is no JSON": lambda c: story(c, "odd_result", "object"),
    "not a number": lambda c: story(c, "odd_result", "nan"),
    "a result that is too large": lambda c: story(c, "odd_result", "large"),
    "a deep result": lambda c: story(c, "misbehave", "deep"),
    "a name that is too long": lambda c: story(c, "misbehave", "long name", max_retries=0),
    "an unknown type": lambda c: unlisted(refused(c, "nonsense", 1)),
    "an unknown priority": lambda c: refused(c, "echo", 1, priority="urgent"),
    "mistaken options": lambda c: refused(c, "echo", 1, delay=-1, tags=["", "x" * 500], max_retries=-3),
    "data of another kind": lambda c: refused(c, "fail", {"message": 5}),
    "data with a field too many": lambda c: refused(c, "slowly", {"seconds": 1, "hours": 2}),
    "data that lacks a field": lambda c: refused(c, "slowly", {}),
    "a batch": whole_batch,
    "a batch of incomplete tasks": incomplete_batch,
    "a result of a failed task": failed,
    "a task that has ended is cancelled": too_late_to_cancel,
    "an unknown id": lambda c: raised(NotFound, lambda: c.get("0" * 26)),
}


@pytest.mark.parametrize("name", CASES)
def test_both_ways_give_the_same(name: str, running: Running, local: LocalClient) -> None:
    with Client(running.url) as client:
        there = CASES[name](client)
    assert CASES[name](local) == there


# --- what only local mode has ---


def test_a_task_ran_when_submit_returns(local: LocalClient) -> None:
    task = local.submit("echo", 7)
    assert task.status == "completed"
    assert local.result(task.task_id, timeout=1) == 7


def test_retries_and_due_times_are_not_waited_for() -> None:
    client = LocalClient(MODULES, settings=Settings())
    due = datetime.now(UTC) + timedelta(days=1)
    task = client.submit("fail", {"message": "m"}, run_at=due).task_id
    assert client.wait(task).status == "failed"
    starts = [each.started_at for each in client.get(task).attempts]
    assert [(each - due).total_seconds() for each in starts if each] == [0, 5, 15, 35]


def test_a_repeated_idempotency_key_returns_the_first_task(local: LocalClient) -> None:
    first = local.submit("echo", 1, idempotency_key="k")
    assert local.submit("echo", 1, idempotency_key="k") == first
    assert len(list(local.tasks())) == 1


def test_a_coroutine_runs_within_the_event_loop_of_a_test(local: LocalClient) -> None:
    async def submit() -> Any:
        return local.result(local.submit("async", 0.01).task_id)

    assert asyncio.run(submit()) == "awaited"


def test_progress_is_kept(local: LocalClient) -> None:
    task = local.submit("talk", {"lines": 2}, max_retries=0).task_id
    assert local.get(task).progress == Progress(fraction=0.4, message="reading")


@pytest.mark.parametrize(
    "options", [{"unique_until": 5}, {"depends_on": ["0" * 26]}, {"on_parent_failure": "wait"}, {"webhook": {}}]
)
def test_unsupported_options_are_errors(local: LocalClient, options: Any) -> None:
    with pytest.raises(ValueError, match=f"LocalClient does not support {next(iter(options))}: test this with"):
        local.submit("echo", 1, **options)
    with pytest.raises(ValueError, match="LocalClient does not support"):
        local.batch([new_task("echo", 1, **options)])
    assert not list(local.tasks())


def test_options_about_tasks_at_the_same_time_have_no_effect(local: LocalClient) -> None:
    for _ in range(2):
        local.submit("echo", 1, unique_key="k", on_conflict="refuse", limit_key="k", fair_key="k", expires_in=5)
    assert [each.status for each in local.tasks()] == ["completed", "completed"]


def test_a_task_after_a_batch_is_not_supported(local: LocalClient) -> None:
    with pytest.raises(ValueError, match="LocalClient does not support then"):
        local.batch([new_task("echo", 1)], then=new_task("echo", 2))


def test_both_are_task_clients(local: LocalClient) -> None:
    clients: list[TaskClient] = [local, Client("http://localhost:1")]
    assert len(clients) == 2
