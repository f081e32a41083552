"""Local mode gives what a gateway and a worker give: the same results, the same errors, the same retries."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from shared.client import (
    Client,
    ClientError,
    Conflict,
    NotFound,
    NotInTime,
    Problem,
    Progress,
    Refused,
    TaskFailed,
    new_task,
)
from shared.client.interface import TaskClient
from shared.config.settings import Settings
from tests.integration.client.conftest import Running
from worker.local import LocalClient, SteppedTime, WallTime

MODULES = ["worker.handlers.examples", "tests.handlers"]
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
        (shown.attempt, shown.retry_count, shown.max_retries, shown.data, shown.tags, shown.priority),
    )


def _error(attempt: Any) -> Any:
    return (attempt.error.type, attempt.error.message) if attempt.error else None


def refused(client: TaskClient, task_type: str, data: Any, **options: Any) -> Any:
    """Why a task was not taken."""
    with pytest.raises(Refused) as why:
        client.submit(task_type, data, **options)
    return why.value.type, why.value.status, why.value.title, [each["field"] for each in why.value.errors]


def family(client: TaskClient) -> Any:
    first = client.submit("echo", {"n": 1}).task_id
    bad = client.submit("fail", {"message": "m"}, max_retries=0).task_id
    child = client.submit("gather", depends_on=[first]).task_id
    anyway = client.submit("gather", depends_on=[{"task_id": bad, "on": "end"}, first]).task_id
    orphan = client.submit("gather", depends_on=[bad]).task_id
    released = client.submit("gather", depends_on=[bad], on_parent_failure="release").task_id
    names = {first: "first", bad: "bad"}
    said = []
    for each in (child, anyway, orphan, released):
        ended = client.wait(each, 60)
        result = {names[key]: value for key, value in ended.result.items()} if ended.result else None
        said.append((ended.status, result))
    return said


def whole_batch(client: TaskClient) -> Any:
    tasks = [
        new_task("echo", 0, item="a"),
        new_task("nonsense", 1),
        new_task("gather", depends_on=[{"item": "a"}]),
        new_task("fail", {"message": "x"}, max_retries=0),
    ]
    feed = client.batch(tasks, name="all", then=new_task("gather", tags=["follower"]))
    items = list(feed)
    kept = [each.task_id for each in items if each.task_id]
    ends = [client.wait(each, 60).status for each in kept]
    [follower] = [each.task_id for each in client.tasks(tag="follower")]
    refused = [each.problem["type"] for each in items if each.problem]
    return feed.accepted, feed.refused, ends, refused, client.result(follower, 60)


def raised(kind: type[ClientError], act: Callable[[], object]) -> Any:
    with pytest.raises(kind) as why:
        act()
    return (why.value.type, why.value.status) if isinstance(why.value, Problem) else None


def cancelled(client: TaskClient) -> Any:
    task = client.submit("echo", 1, delay=600).task_id
    first = client.cancel(task, "why not").status
    failed = raised(TaskFailed, lambda: client.result(task, 5))
    done = client.submit("echo", 1).task_id
    client.wait(done, 60)
    conflict = raised(Conflict, lambda: client.cancel(done))
    return first, client.wait(task, 5), failed, client.cancel(task).status, conflict


def _without_id(value: Any) -> Any:
    first, ended, *rest = value
    return first, ended.status, ended.result, ended.error, *rest


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
    "past its time": lambda c: story(c, "hang", {"how": "python"}, max_retries=0),
    "an unknown type": lambda c: refused(c, "nonsense", 1),
    "an unknown priority": lambda c: refused(c, "echo", 1, priority="urgent"),
    "data of another kind": lambda c: refused(c, "fail", {"message": 5}),
    "data with a field too many": lambda c: refused(c, "slowly", {"seconds": 1, "hours": 2}),
    "data that lacks a field": lambda c: refused(c, "slowly", {}),
    "a parent that is not there": lambda c: refused(c, "gather", None, depends_on=["0" * 26]),
    "parents and children": family,
    "a batch": whole_batch,
    "a cancelled task": lambda c: _without_id(cancelled(c)),
    "an unknown id": lambda c: raised(NotFound, lambda: c.get("0" * 26)),
    "waiting too short": lambda c: raised(NotInTime, lambda: c.wait(c.submit("echo", 1, delay=60).task_id, 0.05)),
}


@pytest.mark.parametrize("name", CASES)
def test_both_ways_give_the_same(name: str, running: Running, local: LocalClient) -> None:
    with Client(running.url) as client:
        there = CASES[name](client)
    assert CASES[name](local) == there


# --- what only local mode has ---


def test_retries_take_no_time_and_the_clock_knows_of_them() -> None:
    clock = SteppedTime(1_800_000_000.0)
    client = LocalClient(MODULES, settings=Settings(), time=clock)
    task = client.submit("fail", {"message": "m"}).task_id
    assert client.wait(task).status == "failed"
    assert clock.now() == 1_800_000_000 + 5 + 10 + 20
    starts = [each.started_at for each in client.get(task).attempts]
    assert [each.timestamp() - 1_800_000_000 for each in starts if each] == [0, 5, 15, 35]


def test_a_time_that_is_everybodys_passes(local: LocalClient) -> None:
    client = LocalClient(MODULES, settings=SETTINGS, time=WallTime())
    begun = datetime.now(UTC)
    assert client.result(client.submit("stubborn", "later").task_id) is None
    assert datetime.now(UTC) - begun >= timedelta(seconds=0.3)


def test_what_is_due_runs_by_priority_then_by_age(local: LocalClient, tmp_path: Any) -> None:
    file = tmp_path / "runs"
    for priority, text in (("low", "d"), ("normal", "b"), ("critical", "a"), ("normal", "c")):
        local.submit("note", {"file": str(file), "text": text}, priority=priority)
    local.submit("note", {"file": str(file), "text": "e"}, priority="critical", delay=3600)
    local.run()
    assert [line.split()[1] for line in file.read_text().splitlines()] == ["a", "b", "c", "d", "e"]


def test_a_task_that_is_too_old_expires(local: LocalClient) -> None:
    task = local.submit("echo", 1, expires_in=10).task_id
    local.time.sleep(11)
    assert local.wait(task).status == "expired"


def test_an_idempotency_key_holds_here_too(local: LocalClient) -> None:
    first = local.submit("echo", 1, idempotency_key="k")
    assert local.submit("echo", 1, idempotency_key="k") == first
    with pytest.raises(Refused, match="Idempotency-Key"):
        local.submit("echo", 2, idempotency_key="k")


def test_progress_and_log_lines_are_kept(local: LocalClient, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    task = local.submit("talk", {"lines": 2}, max_retries=0).task_id
    local.wait(task)
    shown = local.get(task)
    assert shown.progress == Progress(fraction=0.4, message="reading")
    assert [each.split(" ", 2)[2] for each in shown.attempts[0].logs] == ["line 1 of 2", "line 2 of 2"]


def test_what_it_does_not_know_it_says(local: LocalClient) -> None:
    with pytest.raises(ValueError, match="local mode knows no unique_key"):
        local.submit("echo", 1, unique_key="k")


def test_both_are_task_clients(local: LocalClient) -> None:
    clients: list[TaskClient] = [local, Client("http://localhost:1")]
    assert len(clients) == 2
