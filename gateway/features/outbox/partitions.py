"""Rows of an outbox: each goes to the partition that it belongs to."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from firmq.gateway.http.parts import PART
from firmq.gateway.partitions.members import Answer, Member
from firmq.gateway.partitions.router import Call, Router, demand_drained, first_to_store
from firmq.shared.domain.task import TASK_ID
from firmq.shared.features.outbox.receiver import MOST_ROWS
from firmq.shared.submission import refusals
from firmq.shared.submission.placement import name_of, parents_in


def send(router: Router, call: Call) -> Answer:
    """Sends each row to the partition that it belongs to, and puts the outcomes in the order of the rows."""
    body = router.body(call)
    try:
        value = json.loads(body)
        rows, settled = value["rows"], value.get("settled", [])
        if any(not isinstance(each, list) or len(each) > MOST_ROWS for each in (rows, settled)):
            raise ValueError
        if not all(map(TASK_ID.fullmatch, settled)):
            raise ValueError
        places = _places_of_rows(router, rows)
        known_places = router.locate_all(settled)
        settled_places = [known_places[each] for each in settled]
    except (ValueError, RecursionError, KeyError, TypeError, AttributeError):
        return router.members.first.call(call.environ, body)  # it returns the error
    members = {each.number: each for each in (*places, *settled_places)}.values() or [router.members.first]
    items: dict[int, Any] = {}
    headers = list[tuple[str, str]]()
    for part, member in enumerate(members):
        own = [at for at, each in enumerate(places) if each is member]
        known = [each for each, place in zip(settled, settled_places, strict=True) if place is member]
        answer = _send_rows(router, call, {**value, "settled": known}, [rows[at] for at in own], member, part)
        if not answer.well:
            return answer  # rows that were stored are recognized when they are sent again
        headers = answer.headers
        for at, item in zip(own, answer.document["items"], strict=True):
            items[at] = {**item, "index": at}
    ordered = [items[at] for at in sorted(items)]
    status = 207 if any("problem" in each for each in ordered) else 202
    return Answer(-1, status, headers, json.dumps({"items": ordered}).encode() + b"\n")


def _send_rows(router: Router, call: Call, value: Any, rows: list[Any], to: Member, part: int) -> Answer:
    """Sends rows to a partition; where it may not store one of them, each by itself, and that one elsewhere."""
    answer = to.call(call.environ, json.dumps({**value, "rows": rows}).encode(), {PART: part})
    if answer.kind != refusals.NO_PLACE.type:
        return answer
    items = [_send_row(router, call, value, row, to) for row in rows]
    return Answer(to.number, 202, [("Content-Type", "application/json")], json.dumps({"items": items}).encode())


def _send_row(router: Router, call: Call, value: Any, row: Any, to: Member) -> Any:
    """Returns the outcome of one row; its problem when no partition takes it.

    The first to be asked is the partition where it was placed: it recognizes a row that it has stored already.
    """
    body = json.dumps({**value, "rows": [row], "settled": []}).encode()
    order = dict.fromkeys([to, *router.placement.order(_name_of_row(row) or "")])
    answer = first_to_store(list(order), call.environ, body, {PART: 1})  # the request has been counted
    return answer.document["items"][0] if answer.well else {"problem": answer.document}


def _places_of_rows(router: Router, rows: Sequence[Any]) -> list[Member]:
    """Returns the partitions that have the tasks of rows, else those that they are placed in.

    Raises Refusal if one that may have a task is unavailable.
    """
    names = [_name_of_row(row) for row in rows]
    # Before a partition was added, a row had another home.
    holders = router.holders(row["task_id"] for row, name in zip(rows, names, strict=True) if name)
    places: dict[str, Member] = {}
    for row, name in zip(rows, names, strict=True):
        if name and row["task_id"] not in places:
            places[row["task_id"]] = holders[row["task_id"]] or _home_of_row(router, name, row, places)
    return [places[row["task_id"]] if name else router.members.first for row, name in zip(rows, names, strict=True)]


def _home_of_row(router: Router, name: str, row: Any, earlier: Mapping[str, Member]) -> Member:
    """Returns the partition of a new row; `earlier` are the earlier rows' partitions, on which it may depend."""
    if name != row["task_id"]:
        home = router.placement.order(name)[0]
    elif parent := next(parents_in([row]), None):
        return earlier.get(parent) or router.locate(parent)
    else:
        home = router.placement.open_home(name)
    demand_drained(router, name, home)
    return home


def _name_of_row(row: Any) -> str | None:
    """Returns the name that decides where a row without parents goes; None for a row without an id."""
    task_id = row.get("task_id") if isinstance(row, dict) else None
    if not isinstance(task_id, str) or not TASK_ID.fullmatch(task_id):
        return None
    return name_of(row, None) or task_id
