"""Errors are judged by what they are: alone, in groups, and of classes that answer nothing about themselves."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from firmq import GiveUp, RetryLater, TaskSuspended, TimeLimitExceeded, task
from firmq.shared.config.settings import Settings
from firmq.worker.executors.attempt import let_go
from firmq.worker.executors.ipc import Assignment, EndedAttempt
from firmq.worker.executors.outcomes import Outcomes
from firmq.worker.handlers.hooks import ENDS_ATTEMPT, Hook
from firmq.worker.handlers.registry import Handler, Registry

AWAY, KEY = ConnectionError("partner 17 is away"), KeyError("price")
GROUP = ExceptionGroup


def group(*errors: BaseException) -> BaseException:
    return BaseExceptionGroup("unhandled errors in a TaskGroup", errors)


def raised(error: BaseException) -> BaseException:
    """The error, with a traceback."""
    try:
        raise error
    except BaseException as caught:
        return caught


def handler(**options: Any) -> Handler:
    registry = Registry()
    task("sync", registry=registry, **options)(lambda data: None)
    return registry.handlers["sync"]


def ended(error: BaseException, **options: Any) -> EndedAttempt:
    assignment = Assignment(1, b"id", b"sync", b"", 1, 0, b"", b"", 0, 60.0)
    outcomes, of = Outcomes(Settings(), [__file__]), handler(**options)
    return outcomes.failed(assignment, error, {}, 0, outcomes.judge(assignment, of, error))


def end(error: BaseException, **options: Any) -> tuple[str, str, float, str]:
    found = ended(error, **options)
    return found.outcome, found.state, (found.due_us or found.delay_us or 0) / 1e6, found.error_type


def dead(error: BaseException) -> dict[str, str]:
    """What the dead letter of an error says, with what its fingerprint is made of."""
    return dict(json.loads(ended(raised(error), max_retries=0).error or b""))


@pytest.mark.parametrize(
    ("error", "options", "expected"),
    [
        (group(AWAY), {}, ("failed", "retrying", 5.0, "ConnectionError")),
        (group(GiveUp("no")), {}, ("failed", "failed", 0.0, "GiveUp")),
        (group(GiveUp("a"), GiveUp("b")), {}, ("failed", "failed", 0.0, "GiveUp")),
        (group(AWAY, group(group(GiveUp("no")), KEY)), {}, ("failed", "failed", 0.0, "GiveUp")),
        (group(AWAY), {"give_up_on": [OSError]}, ("failed", "failed", 0.0, "ConnectionError")),
        (group(AWAY), {"retry": {OSError: None}}, ("failed", "failed", 0.0, "ConnectionError")),
        (group(AWAY), {"retry": {Exception: None, OSError: [7]}}, ("failed", "retrying", 7.0, "ConnectionError")),
        (group(AWAY, ValueError()), {"retry": {ValueError: [7]}}, ("failed", "retrying", 7.0, "ValueError")),
        (
            group(AWAY),
            {"retry": lambda error, _: {ConnectionError: 9}[type(error)]},
            ("failed", "retrying", 9.0, "ConnectionError"),
        ),
        (group(RetryLater(60), AWAY, RetryLater(600)), {}, ("failed", "retrying", 600.0, "RetryLater")),
        (group(RetryLater(60), GiveUp("no")), {}, ("failed", "failed", 0.0, "GiveUp")),
        (group(TimeLimitExceeded("late"), GiveUp("no")), {}, ("timed_out", "retrying", 5.0, "TimeLimitExceeded")),
        (
            group(TaskSuspended("b", 9, ""), TaskSuspended("a", 7, "")),
            {},
            ("interrupted", "scheduled", 7e-6, "TaskSuspended"),
        ),
        (
            group(TaskSuspended("a", 7, ""), asyncio.CancelledError()),
            {},
            ("interrupted", "scheduled", 7e-6, "TaskSuspended"),
        ),
        (group(TaskSuspended("a", 7, ""), AWAY), {}, ("failed", "retrying", 5.0, "ConnectionError")),
        (group(AWAY), {"retry": {GROUP: [8]}}, ("failed", "retrying", 8.0, "ExceptionGroup")),
        (group(AWAY), {"give_up_on": [GROUP]}, ("failed", "failed", 0.0, "ExceptionGroup")),
    ],
)
def test_a_group_is_judged_by_its_errors(
    error: BaseException, options: dict[str, Any], expected: tuple[str, str, float, str]
) -> None:
    assert end(error, **options) == expected


def test_dead_letters_of_one_cause_are_one_group_with_or_without_a_task_group() -> None:
    alone = dead(AWAY)
    assert alone["message"] == "partner 17 is away"
    assert dead(group(raised(AWAY))) == dead(group(group(raised(AWAY)))) == alone
    assert dead(KEY)["message"] == dead(group(KEY))["message"] == "'price'"


def test_the_order_and_the_number_of_the_errors_of_a_group_do_not_make_other_dead_letters() -> None:
    first = dead(group(AWAY, KEY))
    assert first["message"] == "ConnectionError: partner 17 is away; KeyError: 'price'"
    again = dead(group(KEY, ConnectionError("partner 18 is away"), AWAY, KEY))
    assert {**again, "message": ""} == {**first, "message": ""}
    assert dead(group(AWAY))["pattern"] != first["pattern"]


class Silent(Exception):
    """Fails wherever it is asked for something."""

    def _fail(self, *_: object) -> Any:
        raise RuntimeError("silent")

    __str__ = __repr__ = __bool__ = __eq__ = _fail
    __hash__ = Exception.__hash__
    __class__ = __traceback__ = __cause__ = __notes__ = property(_fail)


class Asked(type):
    """A metaclass that fails when one asks for subclasses."""

    def __instancecheck__(cls, instance: object) -> bool:
        raise RuntimeError

    def __subclasscheck__(cls, subclass: type) -> bool:
        raise RuntimeError


class Odd(Exception, metaclass=Asked):
    pass


class Compared(type):
    """A metaclass that fails when one compares or hashes its classes, or asks for what they inherit from."""

    __hash__ = __eq__ = Silent._fail
    __mro__ = property(Silent._fail)


class Unlike(Exception, metaclass=Compared):
    pass


class Hollow(ExceptionGroup[Exception]):
    exceptions = property(Silent._fail)


def _nested(times: int) -> BaseException:
    error: BaseException = ValueError("v")
    for _ in range(times):
        error = group(error)
    return error


HOSTILE: dict[str, Callable[[], BaseException]] = {
    "silent": Silent,
    "silent in a group": lambda: group(Silent(), ValueError()),
    "odd": lambda: Odd("o"),
    "odd in a group": lambda: group(Odd()),
    "unlike": lambda: Unlike("u"),
    "unlike in a group": lambda: group(Unlike(), ValueError()),
    "hollow": lambda: Hollow("h", [ValueError()]),
    "nested": lambda: _nested(400),
}


@pytest.mark.parametrize("kind", HOSTILE)
@pytest.mark.parametrize("options", [{}, {"give_up_on": [OSError]}, {"retry": {OSError: [1]}}], ids=str)
def test_no_error_ends_the_executor_that_judges_it(kind: str, options: dict[str, Any]) -> None:
    error = HOSTILE[kind]()
    assert end(error, **options)[:2] == ("failed", "retrying")
    assert end(error, max_retries=0)[:2] == ("failed", "failed")


@pytest.mark.parametrize("wrong", [SystemExit, KeyboardInterrupt, Silent, RecursionError])
def test_a_retry_function_that_raises_anything_leaves_it_to_the_policy(wrong: type[BaseException]) -> None:
    def pause(error: BaseException, failures: int) -> float:
        raise wrong()

    assert end(AWAY, retry=pause) == ("failed", "retrying", 5.0, "ConnectionError")


def test_a_hook_may_end_the_attempt_with_a_group() -> None:
    hook = Hook("before_task", test_a_hook_may_end_the_attempt_with_a_group, is_async=False)
    with pytest.raises(BaseExceptionGroup), hook.guarded(ENDS_ATTEMPT):
        raise group(GiveUp("no"))
    for other in (group(AWAY), GeneratorExit(), StopIteration()):
        with hook.guarded(ENDS_ATTEMPT):
            raise other


async def _in_a_group(error: BaseException) -> None:
    async def one() -> None:
        raise error

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(one())


@dataclass(frozen=True)
class Declined(Exception):
    exceptions: Any = None


def _decline() -> None:
    try:
        raise Declined
    except Declined as error:
        raise ExceptionGroup("two", [error, ValueError("x")]) from error


def test_an_error_of_any_make_is_let_go() -> None:
    with pytest.raises(ExceptionGroup) as caught:
        _decline()
    let_go(caught.value)
    assert caught.value.__traceback__ is None
    assert [each.__traceback__ for each in caught.value.exceptions] == [None, None]


def test_a_task_that_goes_on_after_an_error_is_not_ended_with_it() -> None:
    async def pool(result: asyncio.Future[int]) -> str:
        try:
            raise ConnectionError
        except ConnectionError as error:
            result.set_exception(error)
        await asyncio.sleep(0.01)
        return "goes on"

    async def main() -> str:
        result: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        running = asyncio.create_task(pool(result))
        with pytest.raises(ConnectionError) as caught:
            await result
        let_go(caught.value)
        return await running

    assert asyncio.run(main()) == "goes on"
