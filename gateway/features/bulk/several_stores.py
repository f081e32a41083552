"""Bulk actions in a system with several stores: each is in the one that its filter names or that has its tasks."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, NoReturn

from firmq.gateway.http.across import Answer, Call, Document, Store, Stores
from firmq.shared.features.bulk.store import MOST_SELECTED
from firmq.shared.submission import refusals

_TASK_ID = re.compile(r"[A-Za-z0-9_-]{1,128}")


def begin(stores: Stores, call: Call) -> Answer:
    """Begins or previews an action in its store. Raises Refusal (422) where it names none."""
    return _place(stores, _object(call.body)).call(call.environ, call.body)


def all_actions(stores: Stores, call: Call) -> Answer:
    """Returns the bulk actions of all stores, the newest first."""
    return stores.combined(stores.ask(call), _newest_first)


def _newest_first(documents: Mapping[int, Document]) -> Document:
    found = list(documents.values())
    items = sorted((item for each in found for item in each["items"]), key=lambda item: str(item["created_at"]))
    unreadable = list(dict.fromkeys(item for each in found for item in each.get("unreadable", ())))
    merged = {**found[0], "items": items[::-1]}
    return {**merged, "unreadable": unreadable} if "unreadable" in merged else merged


def empty(stores: Stores, call: Call) -> NoReturn:
    """Refuses to empty a queue, which every store has for itself."""
    text = (
        "is in every partition: start a bulk action in each (POST /bulk-actions with the action cancel and a filter of "
        f"`queue` {call.named['name']} and `partition`)"
    )
    raise refusals.invalid([refusals.field_error(("queue",), text)])


def _place(stores: Stores, body: dict[str, Any]) -> Store:
    ids, wanted = body.get("task_ids"), body.get("filter")
    if isinstance(ids, list) and 0 < len(ids) <= MOST_SELECTED and all(map(_is_id, ids)):
        places = {each.number: each for each in stores.locate_all(ids).values()}
        if len(places) > 1:
            numbers = ", ".join(map(str, sorted(places)))
            text = f"are in the partitions {numbers}: start an action in each of them, with the ids of its tasks"
            raise refusals.invalid([refusals.field_error(("task_ids",), text)])
        return next(iter(places.values()))
    if isinstance(wanted, dict) and not ids:
        return stores.named(wanted.get("partition"), ("filter", "partition"))
    return stores.first  # its app returns the error


def _is_id(said: object) -> bool:
    return isinstance(said, str) and _TASK_ID.fullmatch(said) is not None


def _object(body: bytes) -> dict[str, Any]:
    """Returns the JSON object of a body; an empty one if the body is none, so that the app reports the error."""
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
