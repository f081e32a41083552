"""What stands under `@task`, and what the decorator is given, is checked when the module is imported."""

from __future__ import annotations

import decimal
import fractions
import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from firmq import LocalClient
from firmq.shared.config.settings import Settings
from firmq.worker.handlers.registry import HandlerError, Registry, task

if TYPE_CHECKING:
    from decimal import Decimal

INF, NAN = float("inf"), float("nan")
FIVE = decimal.Decimal(5)


@pytest.mark.parametrize(
    ("argument", "values"),
    [
        ("timeout", [FIVE, 0, -5, "30s", INF, NAN, True, 8 * 86400]),
        ("max_retries", [FIVE, -1, INF, NAN, "3", 1.5, True, 1001]),
        ("initial_delay", [FIVE, fractions.Fraction(1), -5, "5s", INF, NAN, True]),
        ("max_delay", [FIVE, -5, INF, NAN, True]),
        ("multiplier", [FIVE, 0.5, 101, NAN, "2"]),
        ("jitter", [FIVE, 2, -0.1, NAN, True]),
        ("give_up_on", [ValueError, ["ValueError"], "ValueError", [None], {ValueError: None}, [ValueError()]]),
        (
            "retry",
            [
                [FIVE],
                5,
                {"ValueError": None},
                [],
                [NAN],
                [True],
                ["1"],
                ValueError,
                lambda error: 5,
                {OSError: [-1]},
            ],
        ),
        ("concurrency", [FIVE, -1, True, 1.5]),
        ("rate", ["100/minute", 100, ""]),
        ("burst", [3]),
        ("queue", ["a b", "", 5, "a\n"]),
        ("preview", ["{", 5]),
        ("threads", [1, "yes"]),
        ("pin_version", ["1"]),
    ],
)
def test_an_argument_out_of_range_is_refused_with_the_names_of_handler_and_argument(
    argument: str, values: list[Any]
) -> None:
    for value in values:
        registry = Registry()
        with pytest.raises(HandlerError) as refused:
            task("send", registry=registry, **{argument: value})(_send)
        assert argument in str(refused.value)
        assert "'send'" in str(refused.value) or "_send" in str(refused.value)
        assert not registry.handlers


def _send(order: int) -> int:
    return order


class Shop:
    def send(self, order: int) -> int:
        return order * 2

    @staticmethod
    async def later(order: int) -> int:
        return order * 2

    later_object = staticmethod(later)
    class_object = classmethod(lambda cls, order: order)

    def __call__(self, order: int) -> int:
        return order


def rows(order: int) -> Any:
    yield order


async def rows_later(order: int) -> Any:
    yield order


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (Shop, "the class Shop"),
        (Shop(), "a Shop"),
        (functools.partial(_send, 1), "a partial"),
        (Shop.__dict__["class_object"], "a classmethod"),
        (Shop.send, "nothing is passed as self"),
        (rows, "has a yield"),
        (rows_later, "has a yield"),
        (None, "a NoneType"),
    ],
)
def test_what_is_no_function_is_refused_with_what_to_do(function: Any, said: str) -> None:
    with pytest.raises(HandlerError, match=said) as refused:
        task("send", registry=Registry())(function)
    assert "use" in str(refused.value) or "write" in str(refused.value) or "return" in str(refused.value)


def _plainly(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return call


@pytest.mark.parametrize("threads", [False, True])
@pytest.mark.parametrize(
    "function",
    [
        Shop().send,
        Shop.later,
        Shop.__dict__["later_object"],
        _plainly(Shop.later),
        functools.lru_cache(Shop().send),
    ],
)
def test_what_calls_a_function_is_run_and_its_awaitable_awaited(function: Any, threads: bool) -> None:
    registry, local = Registry(), LocalClient([], settings=Settings())
    task("send", registry=registry)(function)
    if not registry.handlers["send"].is_async:
        task("send", registry=registry, threads=threads)(function)
    local.handlers = registry.handlers
    assert local.result(local.submit("send", {"order": 4}).task_id) == 8


def test_only_parameters_are_resolved() -> None:
    registry = Registry()

    @task("price", registry=registry)
    def price(order: int) -> Decimal:
        found: Decimal | None = None
        return found or order  # type: ignore[return-value]

    assert registry.handlers["price"].schema["required"] == ["order"]
    with pytest.raises(HandlerError, match=r"cost.*'Decimal' is not defined"):

        @task("cost", registry=registry)
        def cost(price: Decimal) -> None: ...


CELL = "@task('send', registry=registry)\ndef send(order: int) -> int: return order * {}\n"


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (("shop", "shop.py"), ("shop", "shop.py")),  # reloaded
        (("__main__", "<cell 1>"), ("__main__", "<cell 2>")),  # a cell of a notebook
        (("__main__", "/srv/app.py"), ("app", "/srv/app.py")),  # a script that another module imports
    ],
)
def test_a_function_that_is_defined_again_replaces_itself(first: tuple[str, str], second: tuple[str, str]) -> None:
    registry = Registry()
    for factor, (module, file) in ((2, first), (3, second)):
        exec(compile(CELL.format(factor), file, "exec"), {"__name__": module, "task": task, "registry": registry})
    assert registry.handlers["send"].function(4) == 12


def test_two_functions_of_one_type_are_refused() -> None:
    registry = Registry()
    task("send", registry=registry)(_send)
    for other in (lambda order: order, _plainly(lambda order: order), Shop().send):
        with pytest.raises(HandlerError, match="two handlers are named 'send'"):
            task("send", registry=registry)(other)
    task("other", registry=registry)(lambda order: 1)
    with pytest.raises(HandlerError, match="two handlers are named 'other'"):
        task("other", registry=registry)(lambda order: 2)
