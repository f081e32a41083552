"""Rows of an outbox in a system with several stores: each goes to the one that it belongs to."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from firmq.gateway.http.across import PART, Answer, Call, Store, Stores
from firmq.shared.domain.task import TASK_ID
from firmq.shared.features.outbox.receiver import MOST_ROWS
from firmq.shared.submission import refusals
from firmq.shared.submission.submissions import parents_in


def send(stores: Stores, call: Call) -> Answer:
    """Sends each row to the store that it belongs to, and puts the outcomes in the order of the rows."""
    try:
        value = json.loads(call.body)
        rows, settled = value["rows"], value.get("settled", [])
        if any(not isinstance(each, list) or len(each) > MOST_ROWS for each in (rows, settled)):
            raise ValueError
        if not all(map(TASK_ID.fullmatch, settled)):
            raise ValueError
        places = _places_of_rows(stores, rows)
        known_places = stores.locate_all(settled)
        settled_places = [known_places[each] for each in settled]
    except (ValueError, RecursionError, KeyError, TypeError, AttributeError):
        return stores.first.call(call.environ, call.body)  # it returns the error
    members = {each.number: each for each in (*places, *settled_places)}.values() or [stores.first]
    items: dict[int, Any] = {}
    headers = list[tuple[str, str]]()
    for part, member in enumerate(members):
        own = [at for at, each in enumerate(places) if each is member]
        known = [each for each, place in zip(settled, settled_places, strict=True) if place is member]
        answer = _send_rows(stores, call, {**value, "settled": known}, [rows[at] for at in own], member, part)
        if not answer.well:
            return answer  # rows that were stored are recognized when they are sent again
        headers = answer.headers
        for at, item in zip(own, answer.document["items"], strict=True):
            items[at] = {**item, "index": at}
    ordered = [items[at] for at in sorted(items)]
    status = 207 if any("problem" in each for each in ordered) else 202
    return Answer(-1, status, headers, json.dumps({"items": ordered}).encode() + b"\n")


def _send_rows(stores: Stores, call: Call, value: Any, rows: list[Any], to: Store, part: int) -> Answer:
    """Sends rows to a store; where it may not take one of them, each by itself, and that one elsewhere."""
    answer = to.call(call.environ, json.dumps({**value, "rows": rows}).encode(), {PART: part})
    if answer.kind != refusals.NO_PLACE.type:
        return answer
    items = [_send_row(stores, call, value, row, to) for row in rows]
    return Answer(to.number, 202, [("Content-Type", "application/json")], json.dumps({"items": items}).encode())


def _send_row(stores: Stores, call: Call, value: Any, row: Any, to: Store) -> Any:
    """Returns the outcome of one row; its problem when no store takes it.

    The first to be asked is the store where it was placed: it recognizes a row that it has stored already.
    """
    body = json.dumps({**value, "rows": [row], "settled": []}).encode()
    # The part is not 0: the request has been counted.
    answer = stores.store_in_order(row, row["task_id"], to, call.environ, body, {PART: 1})
    return answer.document["items"][0] if answer.well else {"problem": answer.document}


def _places_of_rows(stores: Stores, rows: Sequence[Any]) -> list[Store]:
    """Returns the stores that have the tasks of rows, else those that they are placed in.

    Raises Refusal if one that may have a task is unavailable.
    """
    # Before a store was added, a row had another home.
    holders = stores.holders(row["task_id"] for row in rows if _has_id(row))
    places: dict[str, Store] = {}
    for row in rows:
        if _has_id(row) and (task_id := row["task_id"]) not in places:
            parent = places.get(next(parents_in([row]), ""))  # of an earlier row, which is not stored yet
            places[task_id] = holders[task_id] or stores.home(row, task_id, parent)
    return [places[row["task_id"]] if _has_id(row) else stores.first for row in rows]


def _has_id(row: Any) -> bool:
    task_id = row.get("task_id") if isinstance(row, dict) else None
    return isinstance(task_id, str) and TASK_ID.fullmatch(task_id) is not None
