"""Data of tasks and schedules that a person edited as JSON: parsed, hidden values restored, held against the schema."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flask import abort

from taskqueue.dashboard.context import context
from taskqueue.shared.domain import strict_json
from taskqueue.shared.domain.json_schema import compile_schema
from taskqueue.shared.domain.schedule import NOT_TO_BE_SCHEDULED
from taskqueue.shared.domain.task import WEBHOOK_TYPE
from taskqueue.shared.errors import InvalidJSON


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
    """Ends the request with 400 for a webhook delivery: arbitrary data would be sent with a valid signature."""
    if task_type == WEBHOOK_TYPE:
        abort(400, NOT_TO_BE_SCHEDULED)


def demand_valid(task_type: str, data: Any) -> None:
    """Ends the request with 400 if the data matches no version of the schema that workers published for its type."""
    types = context.stores.types
    types.refresh()
    offer = types.find(task_type)
    versions = [found for each in (offer.versions if offer else ()) if (found := types.version(each))]
    wrong = [_mistakes(found.schema, data) for found in versions]
    if wrong and all(wrong):
        abort(400, f"the data does not match the schema of {task_type}: {'; '.join(wrong[0][:5])}")


def _mistakes(schema: Mapping[str, Any], data: Any) -> list[str]:
    """Returns what is wrong with the data; nothing if the schema is invalid."""
    try:
        found = compile_schema(schema).iter_errors(data)
    except ValueError:
        return []
    return [f"{'.'.join(map(str, ('data', *each.instance_path)))}: {each.message[:300]}" for each in found]
