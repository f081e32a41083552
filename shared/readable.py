"""What is stored may have been damaged by hand: what reading it raises, and whether values are what they should be."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from functools import cache
from types import UnionType
from typing import TYPE_CHECKING, Any, TypeVar, get_args, get_origin, get_type_hints

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    D = TypeVar("D", bound=DataclassInstance)

UNREADABLE = (ValueError, KeyError, TypeError, AttributeError, ArithmeticError, OSError, RecursionError)
"""What reading damaged values raises: also moments beyond all calendars, and JSON nested beyond all reason."""


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
    """Whether a value out of JSON is of this type: a class, a union, a tuple or a mapping of such."""
    if isinstance(value, bool) and hint in (int, float):
        return False
    origin, inner = get_origin(hint), get_args(hint)
    if origin is UnionType:
        return any(fits(value, each) for each in inner)
    if origin is tuple:
        return isinstance(value, tuple) and all(fits(each, inner[0]) for each in value)
    if origin is Mapping:
        return isinstance(value, Mapping) and all(
            fits(each, inner[0]) and fits(value[each], inner[1]) for each in value
        )
    return isinstance(value, (int, float) if hint is float else hint)
