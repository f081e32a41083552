"""Decoding of stored values, which may be corrupt: the errors of reading them, and checks of their types."""

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
"""Raised by reading corrupt values, including instants outside the calendar and JSON nested too deep."""

MOST = 2**63
"""The largest integer of Redis; a larger one cannot be ours."""


def whole(value: bytes | str | int) -> int:
    """Returns a whole number out of Redis. Raises ValueError."""
    number = int(value)
    if not -MOST <= number < MOST:
        raise ValueError("the number is outside the 64-bit range of Redis")
    return number


def whole_or_none(value: object) -> int | None:
    """Returns a whole number out of Redis; None for a missing or other value."""
    try:
        return whole(value) if isinstance(value, bytes | str) else None
    except ValueError:
        return None


def count(score: float | None) -> int:
    """Returns a count that is kept as a score; 0 for none, and for one that cannot be ours."""
    return int(score) if score and 0 < score < MOST else 0


def moment(value: str) -> datetime:
    """Returns an instant as `isoformat` writes it. Raises ValueError or OverflowError, also without a time zone."""
    at = datetime.fromisoformat(value)
    if at.tzinfo is None:
        raise ValueError(f"{value} has no time zone")
    return at.astimezone(UTC)


def as_declared(value: D) -> D:
    """Returns the dataclass if its fields have their declared types. Raises TypeError otherwise."""
    for name, hint in _hints(type(value)).items():
        if not fits(getattr(value, name), hint):
            raise TypeError(f"{name} is no {hint}")
    return value


@cache
def _hints(kind: type[DataclassInstance]) -> dict[str, Any]:
    hints = get_type_hints(kind)
    return {each.name: hints[each.name] for each in fields(kind)}


def fits(value: object, hint: Any) -> bool:
    """Returns whether a JSON value is of this type: a class, a union, a sequence, a tuple or a mapping of such."""
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
