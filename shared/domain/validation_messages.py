"""Formats validation errors: the expected value and the required change."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from pydantic import BaseModel, ValidationError

Path = tuple[str | int, ...]

_KINDS: Mapping[type, str] = {
    bool: "a boolean",
    int: "a number",
    float: "a number",
    str: "a string",
    list: "an array",
    dict: "an object",
    type(None): "null",
}

_NUMBER = "must be a number"
_TEXTS: Mapping[str, str] = {
    "float_type": _NUMBER,
    "float_parsing": _NUMBER,
    "finite_number": "must be a finite number",
    "int_type": "must be a whole number",
    "int_parsing": "must be a whole number",
    "int_from_float": "must be a whole number",
    "string_type": "must be a string",
    "list_type": "must be an array",
    "model_type": "must be an object",
    "dict_type": "must be an object",
    "greater_than_equal": "must be at least {ge:g}",
    "greater_than": "must be more than {gt:g}",
    "less_than_equal": "must be at most {le:.16g}",
    "too_long": "must have at most {max_length} items",
    "string_too_long": "must have at most {max_length} characters",
    "string_too_short": "must not be empty",
}


def kind_of(value: object) -> str:
    """Returns the kind of a JSON value with its article."""
    return _KINDS.get(type(value), "something else")


def explain(error: ValidationError, model: type[BaseModel]) -> Iterator[tuple[Path, str]]:
    """Yields the place of each mistake and the expected value."""
    for item in error.errors(include_url=False):
        yield item["loc"], _text(item, model)


def _text(item: Mapping[str, Any], model: type[BaseModel]) -> str:
    kind, context = item["type"], item.get("ctx", {})
    if kind == "missing":
        return "is required"
    if kind == "extra_forbidden":
        return _unknown(str(item["loc"][-1]), model if len(item["loc"]) == 1 else None)
    if kind == "value_error":
        return str(context["error"])
    if kind in ("enum", "literal_error"):
        return f"must be one of {context['expected'].replace(' or ', ', ')}"
    if kind in _TEXTS:
        return f"{_TEXTS[kind].format(**context)}, got {shown(item['input'])}"
    return str(item["msg"])


def _unknown(name: str, model: type[BaseModel] | None) -> str:
    if model is None:
        return "is unknown: leave it out"
    known = list(model.model_fields)
    near = difflib.get_close_matches(name[:64], known, 1)
    return f"is unknown: did you mean {near[0]}?" if near else f"is unknown: use one of {', '.join(known)}"


def shown(value: object) -> str:
    """Formats a piece of input for a message: short scalars as they are, anything else by its kind."""
    if isinstance(value, bool):
        return "a boolean"
    if isinstance(value, int | float):
        return f"{value:.6g}" if isinstance(value, float) or abs(value) < 1e15 else "a huge number"
    if isinstance(value, str) and len(value) <= 40:
        return repr(value)
    return kind_of(value)


def choices(names: Iterable[str]) -> str:
    """Returns names as a list, shortened after 20."""
    listed = list(names)
    return ", ".join(listed[:20]) + (f" and {len(listed) - 20} more" if len(listed) > 20 else "")


def either(kinds: Iterable[str]) -> str:
    """Formats JSON Schema types as a choice: "an integer, a number or a string"."""
    *first, last = [f"{'an' if kind[0] in 'aio' else 'a'} {kind}" if kind != "null" else kind for kind in kinds]
    return f"{', '.join(first)} or {last}" if first else last
