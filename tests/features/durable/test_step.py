"""Steps in local mode: as in a worker, but for lost workers."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from pydantic import Field
from typing_extensions import TypedDict

from firmq import GiveUp, LocalClient, sleep, sleep_until, step, task, wait_for
from firmq.shared.config.settings import Settings
from firmq.shared.domain.task import TaskState
from firmq.worker.handlers.registry import Registry
from tests.features.durable.handlers import calls
from tests.unit.worker.executors.test_errors import AWAY, KEY, _in_a_group
from tests.unit.worker.handlers.test_registration import FIVE, NAN, _plainly, _send

MODULES = ["tests.features.durable.handlers"]


@pytest.fixture
def local() -> LocalClient:
    return LocalClient(MODULES, settings=Settings())


@pytest.mark.parametrize("kind", ["walk", "walk-async", "walk-threads"])
def test_a_finished_step_is_not_repeated_by_a_retry(local: LocalClient, tmp_path: Path, kind: str) -> None:
    names = ["a", "b"]
    task = local.get(local.submit(kind, {"folder": str(tmp_path), "names": names, "fails": 2}).task_id)
    assert task.result == [{"name": name, "calls": 1} for name in names]
    assert [calls(tmp_path, name) for name in names] == [1, 1]
    assert [(each.name, each.kind, each.attempt, each.tries) for each in task.steps] == [
        ("a", "result", 1, 1),
        ("b", "result", 1, 1),
    ]
    assert task.steps[0].size_bytes == len('{"name":"a","calls":1}')
    assert len(task.attempts) == 3


def test_steps_of_coroutines_may_run_at_a_time(local: LocalClient, tmp_path: Path) -> None:
    names = [str(number) for number in range(20)]
    assert local.result(local.submit("at-once", {"folder": str(tmp_path), "names": names}).task_id)
    assert {calls(tmp_path, name) for name in names} == {1}


@pytest.mark.parametrize("kind", ["values", "values-async"])
def test_stable_values_are_those_of_the_first_attempt(local: LocalClient, kind: str) -> None:
    task = local.get(local.submit(kind, {}).task_id)
    assert task.attempts[0].error is not None
    assert str(task.result[:3])[1:-1] in task.attempts[0].error.message
    assert kind != "values" or task.result[3] == [1, 2]


@pytest.mark.parametrize("kind", ["tries", "tries-async"])
@pytest.mark.parametrize(("fails", "retries", "state"), [(2, 2, "completed"), (3, 2, "failed"), (1, 0, "failed")])
def test_a_step_has_retries_of_its_own(
    local: LocalClient, tmp_path: Path, kind: str, fails: int, retries: int, state: str
) -> None:
    data = {"folder": str(tmp_path), "fails": fails, "retries": retries}
    task = local.get(local.submit(kind, data).task_id)
    assert task.status == state
    assert calls(tmp_path, "call") == min(fails, retries) + 1
    if state == "completed":
        assert [each.tries for each in task.steps] == [fails + 1]
    else:
        assert task.error is not None
        assert (task.error.type, task.error.message) == ("ConnectionError", f"call {retries + 1}")
        assert task.error.traceback is not None
        assert task.error.traceback.rstrip().splitlines()[-3].strip().startswith("File")


@pytest.mark.parametrize("caught", [True, False])
def test_an_error_to_give_up_on_is_the_end_of_a_step(local: LocalClient, tmp_path: Path, caught: bool) -> None:
    task = local.get(local.submit("declined", {"folder": str(tmp_path), "caught": caught}).task_id)
    assert calls(tmp_path, "charge") == 1
    message = "step 'charge' failed with Declined: no funds"
    if caught:
        assert (task.result, len(task.attempts)) == (message, 2)
    else:
        assert task.status is TaskState.FAILED
        assert task.error is not None
        assert (task.error.type, task.error.message, len(task.attempts)) == ("StepFailed", message, 1)
    assert [each.kind for each in task.steps] == ["error"]


@pytest.mark.parametrize(
    ("how", "error", "words", "attempts"),
    [
        ("twice", "DuplicateStep", "two steps with the name 'a': give each its own name", 1),
        ("name", "ValueError", "1 to 100 characters out of", 4),
        ("large", "ResultTooLarge", "the result of step 'a' has 2000002 bytes as JSON", 1),
        ("no json", "ResultNotSerializable", "step 'a' returned object, which has no JSON form", 1),
        ("retries", "ValueError", "step 'a': retries and retry_delay must be at least 0, got -1", 4),
    ],
)
def test_misuse_is_an_error_that_says_what_to_change(
    local: LocalClient, how: str, error: str, words: str, attempts: int
) -> None:
    task = local.get(local.submit("misused", {"how": how}).task_id)
    assert task.error is not None
    assert (task.error.type, len(task.attempts)) == (error, attempts)
    assert words in task.error.message


def test_outside_of_a_task_a_step_only_calls_its_function(monkeypatch: pytest.MonkeyPatch) -> None:
    async def double(number: int) -> int:
        return 2 * number

    async def wait() -> Any:
        return await step("double", double, 21)

    assert step("add", lambda a, b: a + b, 1, b=2) == 3
    assert asyncio.run(wait()) == 42


@pytest.mark.parametrize("kind", ["nap-between", "nap-between-threads", "nap-between-async"])
def test_a_task_continues_after_its_sleep(local: LocalClient, tmp_path: Path, kind: str) -> None:
    task = local.get(local.submit(kind, {"folder": str(tmp_path), "seconds": 3600}).task_id)
    assert task.result == [{"name": "first", "calls": 1}, {"name": "second", "calls": 1}, 2, 0]
    assert calls(tmp_path, "finally") == 2
    assert calls(tmp_path, "swallowed") == 0
    first, second = task.attempts
    assert (first.outcome, second.outcome, task.retry_count) == ("interrupted", "completed", 0)
    assert first.error is not None
    assert first.error.type == "TaskSuspended"
    assert "sleeps in step 'pause', until " in first.error.message
    assert first.started_at is not None
    assert second.started_at is not None
    assert timedelta(seconds=3600) <= second.started_at - first.started_at < timedelta(seconds=3900)
    assert [(each.name, each.kind) for each in task.steps] == [
        ("first", "result"),
        ("pause", "sleep"),
        ("second", "result"),
    ]


def test_sleeps_at_a_time_are_one(local: LocalClient) -> None:
    task = local.get(local.submit("nap-in-group", {}).task_id)
    assert task.result == "awake"
    assert len(task.attempts) in (2, 3)


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ("naive", "sleep_until needs a time with a time zone"),
        ("negative", "has to last from 0 to 31622400 seconds (MAX_DELAY), got -1"),
        ("long", "has to last from 0 to 31622400 seconds (MAX_DELAY), got 34560000"),
        ("past", None),
    ],
)
def test_what_cannot_be_slept_is_an_error(local: LocalClient, how: str, words: str | None) -> None:
    task = local.get(local.submit("nap-wrong", {"how": how}).task_id)
    if words is None:
        assert (task.status, len(task.attempts)) == ("completed", 1)
    else:
        assert task.error is not None
        assert words in task.error.message


def test_sleeps_cost_no_retry(local: LocalClient, tmp_path: Path) -> None:
    task = local.get(local.submit("fails-then-naps", {"folder": str(tmp_path)}).task_id)
    assert [each.outcome for each in task.attempts] == ["failed", "interrupted", "failed"]
    assert task.status == "failed"


def test_outside_of_a_task_sleeping_takes_no_time() -> None:
    async def wait() -> None:
        await sleep(3600)
        await sleep_until(datetime(2100, 1, 1, tzinfo=UTC))

    asyncio.run(wait())
    sleep(3600)


@pytest.mark.parametrize("kind", ["approve", "approve-threads", "approve-async"])
def test_a_signal_of_local_mode_is_there_or_never_comes(local: LocalClient, tmp_path: Path, kind: str) -> None:
    data = {"folder": str(tmp_path), "within": 3600}
    assert local.result(local.submit(kind, data).task_id) == ["too late", 2, 0]
    local.signals["approval"] = {"by": "Ann"}
    task = local.get(local.submit(kind, {"folder": str(tmp_path)}).task_id)
    assert task.result == [{"by": "Ann"}, 1, 0]
    assert [(each.name, each.kind) for each in task.steps] == [
        ("ask", "result"),
        ("signal:approval", "signal"),
        ("tell", "result"),
    ]


def test_a_signal_that_never_comes_makes_a_dead_letter(local: LocalClient) -> None:
    task = local.get(local.submit("approved-or-dead", {}).task_id)
    assert task.error is not None
    assert (task.error.type, task.error.message) == ("SignalTimeout", "signal 'approval' did not arrive in time")
    assert [each.outcome for each in task.attempts] == ["interrupted", "failed"]


@pytest.mark.parametrize("kind", ["approve-typed", "approve-typed-async"])
def test_a_signal_of_local_mode_has_its_type(local: LocalClient, tmp_path: Path, kind: str) -> None:
    local.signals["approval"] = {"approved": True, "until": "2030-01-31"}
    assert local.result(local.submit(kind, {"folder": str(tmp_path)}).task_id) == [True, "2030-01-31", 1]
    local.signals["approval"] = {"approved": "perhaps"}
    error = local.get(local.submit(kind, {"folder": str(tmp_path)}, max_retries=0).task_id).error
    assert error
    assert error.message.startswith("the data of signal 'approval' is not accepted: approved: Input should be a valid")


@dataclass
class _Answer:
    yes: bool


class _Given(TypedDict):
    yes: bool


@pytest.mark.parametrize(
    ("data_type", "data", "expected"),
    [
        (_Answer, {"yes": True}, _Answer(yes=True)),
        (_Given, {"yes": True}, {"yes": True}),
        (int | None, None, None),
        (Literal["yes", "no"], "no", "no"),
        (list[date], ["2030-01-31"], [date(2030, 1, 31)]),
        (Annotated[int, Field(gt=3)], 4, 4),
        (Any, {"x": 1}, {"x": 1}),
    ],
)
def test_any_annotation_is_the_type_of_a_signal(data_type: Any, data: Any, expected: Any) -> None:
    registry, found = Registry(), list[Any]()
    task("any", registry=registry)(lambda: found.append(wait_for("approval", data_type)))
    local = LocalClient([])
    local.handlers |= registry.handlers
    local.signals["approval"] = data
    assert local.get(local.submit("any", {}).task_id).status == "completed"
    assert found == [expected]


def test_outside_of_a_task_nothing_can_be_waited_for() -> None:
    with pytest.raises(RuntimeError, match="works only inside a task: test the handler with LocalClient"):
        wait_for("approval")
    with pytest.raises(ValueError, match="cannot begin with 'signal:'"):
        step("signal:approval", int)


@pytest.mark.parametrize(
    "options",
    [
        {"retries": True},
        {"retries": 1.5},
        {"retry_delay": NAN},
        {"retry_delay": FIVE},
        {"give_up_on": ["OSError"]},
    ],
)
def test_a_step_checks_its_options_before_it_fails(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(options))):
        step("a", _send, 1, **options)


def test_steps_are_awaited_behind_a_plain_decorator() -> None:
    async def twice(order: int) -> int:
        first: int = await step("a", _double, order)
        return first

    registry, local = Registry(), LocalClient([], settings=Settings())
    task("send", registry=registry)(_plainly(twice))
    local.handlers = registry.handlers
    ended = local.get(local.submit("send", {"order": 4}).task_id)
    assert (ended.result, [each.name for each in ended.steps]) == (8, ["a"])


async def _double(order: int) -> int:
    return order * 2


@pytest.mark.parametrize(
    ("error", "calls", "said"),
    [
        (KEY, 1, "StepFailed: step 'a' failed with KeyError: 'price'"),
        (GiveUp("no"), 1, "GiveUp: no"),
        (AWAY, 3, "ConnectionError: partner 17 is away"),
    ],
)
def test_a_step_is_retried_by_what_a_group_holds(error: BaseException, calls: int, said: str) -> None:
    seen: list[int] = []

    async def work() -> None:
        seen.append(1)
        await _in_a_group(error)

    async def run() -> None:
        await step("a", work, retries=2, retry_delay=0, give_up_on=[KeyError])

    local = LocalClient([], settings=Settings())
    registry = Registry()
    task("steps", max_retries=0, registry=registry)(run)
    local.handlers = dict(registry.handlers)
    failed = local.get(local.submit("steps", {}).task_id).error
    assert failed
    assert (len(seen), f"{failed.type}: {failed.message}") == (calls, said)
