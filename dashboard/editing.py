"""Parses edited JSON data of tasks and schedules, restores hidden values, and validates it against the schema."""

from __future__ import annotations

import json
import re
from typing import Any

from flask import abort

from firmq.dashboard.context import context
from firmq.dashboard.forms import Path
from firmq.shared.domain import strict_json
from firmq.shared.domain.task import INTERNAL_TYPES
from firmq.shared.errors import InvalidJSON
from firmq.shared.submission import refusals
from firmq.shared.submission.refusals import Refusal

NOT_TO_BE_EDITED = "this type is internal, and its tasks cannot be made by hand: choose another type"


def parse(text: str) -> Any:
    """Returns the edited JSON. Ends the request with 400 if it is invalid."""
    try:
        return strict_json.parse(text.encode("utf-8", "surrogatepass"), max_depth=context.settings.max_json_depth)
    except InvalidJSON as error:
        abort(400, str(error))


def restore(edited: Any, original: Any) -> Any:
    """Returns the edited data with the original's hidden values. Ends the request with 400 if that is ambiguous."""
    try:
        return context.redaction.restore(edited, original)
    except ValueError as error:
        abort(400, str(error))


def demand_own(task_type: str) -> None:
    """Ends the request with 400 for an internal type: its data would be sent with a valid signature, or name a job."""
    if task_type in INTERNAL_TYPES:
        abort(400, NOT_TO_BE_EDITED)


def demand_valid(task_type: str, data: Any) -> None:
    """Ends the request with 400 if the data matches no version of the schema that workers published for its type."""
    if wrong := [f"{'.'.join(map(str, path))}: {text}" for path, text in mistakes_in(task_type, data)]:
        abort(400, f"the data does not match the schema of {task_type}: {'; '.join(wrong[:5])}")


def mistakes_in(task_type: str, data: Any, demand_type: bool = False) -> list[tuple[Path, str]]:
    """Returns the mistakes in data under the schema of its type; an unknown type is a mistake only if demanded."""
    try:
        context.stores.type_cache.check(task_type, data)
    except Refusal as refusal:
        if demand_type or refusal.kind is refusals.INVALID:
            return mistakes_of(refusal, data)
    return []


def mistakes_of(refusal: Refusal, data: Any) -> list[tuple[Path, str]]:
    """Returns the mistakes of a refusal by their places, without texts that might quote hidden values."""
    errors = refusal.members.get("errors")
    if not errors:
        return [((), refusal.detail)]
    return [_located(each["pointer"], each["detail"], data) for each in errors]


def _located(pointer: str, text: str, data: Any) -> tuple[Path, str]:
    path: Path = tuple(part.replace("~1", "/").replace("~0", "~") for part in pointer.removeprefix("#").split("/")[1:])
    if path[:1] != ("data",):
        return path, text
    if missing := _REQUIRED.fullmatch(text):
        return (*path, json.loads(missing[1])), "is required"
    if not text.startswith(_WITHOUT_VALUES) and _may_quote_hidden(path[1:], data):
        return path, "is not valid; the reason is not shown, as it would quote a hidden value"
    return path, text


def _may_quote_hidden(path: Path, data: Any) -> bool:
    """Returns whether the value at this place is hidden, holds a hidden value, or cannot be found."""
    shown = context.redaction.hide(data)
    try:
        for part in path:
            at = int(part) if isinstance(data, list) else part
            data, shown = data[at], shown[at]
    except (KeyError, IndexError, ValueError, TypeError):
        return True
    return bool(data != shown)


_REQUIRED = re.compile(r'("(?:[^"\\]|\\.)*") is a required property')
_WITHOUT_VALUES = ("Additional properties are not allowed", "Unevaluated properties are not allowed")
