"""Bulk actions: each is in one partition, which its filter names or which has its tasks."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, NoReturn

from firmq.gateway.partitions import merging
from firmq.shared.features.bulk.store import MOST_SELECTED
from firmq.shared.submission import refusals

if TYPE_CHECKING:
    from firmq.gateway.partitions.members import Answer, Member
    from firmq.gateway.partitions.router import Call, Router

_TASK_ID = re.compile(r"[A-Za-z0-9_-]{1,128}")


def begin(router: Router, call: Call) -> Answer:
    """Begins or previews an action in its partition. Raises Refusal (422) where it names none."""
    sent = router.body(call)
    return _place(router, _object(sent)).call(call.environ, sent)


def all_actions(router: Router, call: Call) -> Answer:
    """Returns the bulk actions of all partitions, the newest first."""
    return router.combined(router.ask(call), _newest_first)


def _newest_first(parts: merging.Parts) -> merging.Document:
    every = [item for found in parts.values() for item in found["items"]]
    items = sorted(every, key=lambda item: str(item["created_at"]), reverse=True)
    return merging.with_unreadable({**merging.first(parts), "items": items}, parts)


def empty(router: Router, call: Call) -> NoReturn:
    """Refuses to empty a queue, which every partition has for itself."""
    name = call.named["name"]
    text = (
        "is in every partition: start a bulk action in each (POST /bulk-actions with the action cancel and a filter of "
        f"`queue` {name} and `partition`)"
    )
    raise refusals.invalid([refusals.field_error(("queue",), text)])


def _place(router: Router, body: dict[str, Any]) -> Member:
    ids, wanted = body.get("task_ids"), body.get("filter")
    if isinstance(ids, list) and 0 < len(ids) <= MOST_SELECTED and all(map(_is_id, ids)):
        places = dict.fromkeys(router.locate_all(ids).values())
        if len(places) > 1:
            numbers = ", ".join(str(each) for each in sorted(member.number for member in places))
            text = f"are in the partitions {numbers}: start an action in each of them, with the ids of its tasks"
            raise refusals.invalid([refusals.field_error(("task_ids",), text)])
        return next(iter(places))
    if isinstance(wanted, dict) and not ids:
        return router.named_partition(wanted.get("partition"), ("filter", "partition"))
    return router.members.first  # its app returns the error


def _is_id(said: object) -> bool:
    return isinstance(said, str) and _TASK_ID.fullmatch(said) is not None


def _object(body: bytes) -> dict[str, Any]:
    """Returns the JSON object of a body; an empty one if the body is none, so that the app reports the error."""
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
