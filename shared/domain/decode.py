"""What is stored may have been damaged by hand: what reading it raises, and whether values are what they should be."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from datetime import UTC, datetime
from functools import cache
from types import UnionType
from typing import TYPE_CHECKING, Any, TypeVar, get_args, get_origin, get_type_hints

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    D = TypeVar("D", bound=DataclassInstance)

UNREADABLE = (ValueError, KeyError, TypeError, AttributeError, ArithmeticError, OSError, RecursionError)
"""What reading damaged values raises: also moments beyond all calendars, and JSON nested beyond all reason."""

MOST = 2**63
"""Redis counts up to here; what is beyond can be no number of ours, and nobody can calculate with it."""


def whole(value: bytes | str | int) -> int:
    """A whole number out of Redis. Raises ValueError."""
    number = int(value)
    if not -MOST <= number < MOST:
        raise ValueError("it is beyond all numbers that Redis counts")
    return number


def whole_or_none(value: object) -> int | None:
    """A whole number out of Redis; None where something else is, or nothing."""
    try:
        return whole(value) if isinstance(value, bytes | str) else None
    except ValueError:
        return None


def moment(value: str) -> datetime:
    """An instant as `isoformat` writes it. Raises ValueError or OverflowError, also when it does not say its zone."""
    at = datetime.fromisoformat(value)
    if at.tzinfo is None:
        raise ValueError(f"{value} does not say in which zone")
    return at.astimezone(UTC)


def as_declared(value: D) -> D:
    """A dataclass whose fields hold what they are declared to; raises TypeError when one does not."""
    for name, hint in _hints(type(value)).items():
        if not fits(getattr(value, name), hint):
            raise TypeError(f"{name} is no {hint}")
    return value


@cache
def _hints(kind: type[DataclassInstance]) -> dict[str, Any]:
    hints = get_type_hints(kind)
    return {each.name: hints[each.name] for each in fields(kind)}


def fits(value: object, hint: Any) -> bool:
    """Whether a value out of JSON is of this type: a class, a union, a sequence, a tuple or a mapping of such."""
    if hint is Any:
        return True
    if hint in (int, float):
        return isinstance(value, (int, hint)) and not isinstance(value, bool) and -MOST <= value < MOST
    origin, inner = get_origin(hint), get_args(hint)
    if origin is UnionType:
        return any(fits(value, each) for each in inner)
    if origin is Sequence:
        return isinstance(value, (list, tuple)) and all(fits(each, inner[0]) for each in value)
    if origin is tuple:
        return isinstance(value, tuple) and all(fits(each, inner[0]) for each in value)
    if origin is Mapping:
        return isinstance(value, Mapping) and all(
            fits(each, inner[0]) and fits(value[each], inner[1]) for each in value
        )
    return isinstance(value, hint)
