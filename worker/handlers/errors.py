"""Classifies errors for outcomes, rules for retries, dead letters, hooks and steps.

An exception group counts as its errors, because `asyncio.TaskGroup` wraps whatever its tasks raise. Nothing here
trusts the class of an error: a handler may raise one whose `__str__`, `__class__` or metaclass fails.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from firmq.shared.domain import failure_fingerprint
from firmq.shared.domain.failure_fingerprint import class_name, lineage
from firmq.worker.handlers.signals import GiveUp, LeaseLost, RetryLater, TaskCancelled, TaskSuspended
from firmq.worker.handlers.signals import TimeLimitExceeded as TimeLimit

if TYPE_CHECKING:
    from typing_extensions import TypeIs

FINAL, NAMED, OTHER = 1, 3, 4
"""How an error weighs: no retry, a rule of the handler names it, or neither."""
LONGEST_MESSAGE = 2000
_LONGEST_LINE = 500
_MOST_TEXTS = 1000


def is_error(value: object) -> TypeIs[BaseException]:
    """Returns whether a value is an error; `isinstance` would read its `__class__`, which may fail."""
    return issubclass(type(value), BaseException)


def classes_of(given: object) -> tuple[type[BaseException], ...]:
    """Returns the error classes of a `give_up_on`. Raises ValueError for anything else."""
    if isinstance(given, list | tuple | set | frozenset) and all(
        isinstance(each, type) and issubclass(each, BaseException) for each in given
    ):
        return tuple(given)
    raise ValueError(f"give_up_on is {repr(given)[:100]}: use a list of exception classes, such as [ValueError]")


def is_a(error: BaseException, classes: Iterable[type[BaseException]]) -> bool:
    """Returns whether an `except` clause with these classes catches the error."""
    family = lineage(error)
    return any(each is one for one in classes for each in family)


def decisive(
    error: BaseException,
    weight: Callable[[BaseException], int] = lambda error: FINAL if is_a(error, (GiveUp,)) else OTHER,
    whole: Iterable[type[BaseException]] = (),
) -> BaseException:
    """Returns the error that decides: the error itself, or one of a group, whatever their order in it.

    Interruptions come first, then errors that no retry can fix, the RetryLater with the longest delay, errors that a
    rule names, others by the name of their class, and last the suspension that ends first. Groups of the classes
    `whole` are not opened.
    """
    found = leaves(error, whole)
    cancelled = getattr(sys.modules.get("asyncio"), "CancelledError", GeneratorExit)  # most handlers do not load it

    def order(each: BaseException) -> tuple[int, float, str, str]:
        rank, number = weight(each), 0.0
        if is_a(each, (TimeLimit, TaskCancelled, LeaseLost)):
            rank = 0
        elif is_a(each, (TaskSuspended,)):
            rank, number = 5, getattr(each, "until_us", 0.0)
        elif is_a(each, (cancelled, GeneratorExit)):
            rank = 6  # caused by the end of another task
        elif rank != FINAL and is_a(each, (RetryLater,)):
            rank, number = 2, -each.delay.total_seconds()  # type: ignore[attr-defined]  # it has passed its check
        return rank, number, class_name(each), _text(each)

    return min(found, key=order) if len(found) > 1 else found[0]


def leaves(error: BaseException, whole: Iterable[type[BaseException]] = ()) -> list[BaseException]:
    """Returns the errors of a group and of the groups in it, or the error itself."""
    found, waiting, seen = [], [error], set[int]()
    while waiting:
        each = waiting.pop()
        if is_a(each, (BaseExceptionGroup,)) and not is_a(each, whole):
            # By the descriptor, as a subclass may hide it; once, as one error can be in many groups.
            inner = BaseExceptionGroup.__dict__["exceptions"].__get__(each)
            waiting += [one for one in reversed(inner) if id(one) not in seen]
            seen.update(map(id, waiting))
        else:
            found.append(each)
    return found


def message(error: BaseException) -> str:
    """Returns the text of an error; of a group each text once, with numbers and ids left out of account."""
    found = leaves(error)
    if len(found) == 1:
        return _text(found[0])
    texts: dict[tuple[str, str], str] = {}
    for name, text in sorted((class_name(each), _text(each)) for each in found[:_MOST_TEXTS]):
        texts.setdefault((name, failure_fingerprint.pattern(text)), text)
    if len(texts) == 1:
        return next(iter(texts.values()))
    return "; ".join(f"{name}: {text}" for (name, _), text in texts.items())[:LONGEST_MESSAGE]


def describe(error: BaseException) -> str:
    """Returns an error in one line, even if its `__str__` raises."""
    name, text = class_name(decisive(error)), message(error)
    return (name if text == name else f"{name}: {text}")[:_LONGEST_LINE]


def traceback_of(error: BaseException) -> Any:
    """Returns the traceback of an error, even if its class hides it."""
    return BaseException.__dict__["__traceback__"].__get__(error)


def storable(text: str) -> str:
    """Returns the text with lone surrogates escaped, which UTF-8 cannot hold."""
    return text.encode("utf-8", "backslashreplace").decode()


def _text(error: BaseException) -> str:
    try:
        return storable((str(error) or class_name(error))[:LONGEST_MESSAGE])
    except BaseException as broken:  # its __str__ may raise anything
        return f"(no message, its __str__ raised: {class_name(broken)})"
