"""Merges the pages of a list in several partitions: its items in order, and one cursor over all of them."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

T = TypeVar("T")

_ARCHIVED = "h"
"""The beginning of positions in the history (`shared/features/history/records.py`)."""
_CURSOR = "p."
_ENTRY_ID = re.compile(r"(\d{1,20})-(\d{1,20})")


class Part(NamedTuple, Generic[T]):
    """The page of one partition, the cursor after each of its items, and its next page's (None at the end)."""

    items: Sequence[T]
    positions: Sequence[str]
    next_cursor: str | None


def write_cursor(places: Mapping[int, str | None]) -> str | None:
    """Returns the cursor of a merged page: the cursor of each partition's list; None when all have ended."""
    if all(place is None for place in places.values()):
        return None
    text = json.dumps({str(number): place for number, place in places.items()}, separators=(",", ":"))
    return _CURSOR + base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def read_cursor(cursor: str | None, numbers: Iterable[int]) -> dict[int, str | None]:
    """Returns the cursor of each partition's list: "" for its top, None for a list that has ended.

    Raises ValueError for a cursor of another list.
    """
    if cursor is None:
        return dict.fromkeys(numbers, "")
    if not cursor.startswith(_CURSOR):
        raise ValueError("not a cursor of this list")
    text = cursor.removeprefix(_CURSOR)
    try:
        given = json.loads(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
    except RecursionError:
        given = None
    if not isinstance(given, dict) or not all(place is None or isinstance(place, str) for place in given.values()):
        raise ValueError("not a cursor of this list")
    return {number: given.get(str(number), "") for number in numbers}


def order(position: str) -> tuple[bool, float, str]:
    """Returns the sort key of an item's position, SCORE_ID: the latest first, and archived tasks last."""
    score, _, member = position.removeprefix(_ARCHIVED).partition("_")
    return not position.startswith(_ARCHIVED), float(score), member


def order_of_entry(entry_id: str) -> tuple[int, int]:
    """Returns the sort key of an entry of a stream."""
    found = _ENTRY_ID.fullmatch(entry_id)
    return (int(found[1]), int(found[2])) if found else (0, 0)


def order_of_name(position: str) -> tuple[int, ...]:
    """Returns the sort key of an item of a list by name: the first name is the greatest."""
    return (*(-byte for byte in position.encode()), 1)


def merge_pages(
    parts: Mapping[int, Part[T]],
    before: Mapping[int, str | None],
    limit: int,
    key: Callable[[str], Any] = order,
) -> tuple[list[T], str | None]:
    """Returns the first `limit` items of all pages, and the cursor after them.

    `before` are the cursors of these pages. A page that is short and not the last may be followed by newer items than
    other pages have, so nothing beyond its end is shown.
    """
    ends = [key(part.next_cursor) for part in parts.values() if part.next_cursor and len(part.items) < limit]
    items = [
        (key(position), number, position, item)
        for number, part in parts.items()
        for position, item in zip(part.positions, part.items, strict=True)
    ]
    items.sort(key=lambda each: each[0], reverse=True)
    shown, passed = list[T](), list[tuple[int, str]]()
    seen: set[str] = set()
    for place, number, position, item in items:
        if not (position.startswith(_ARCHIVED) and position in seen):  # all partitions share the history
            if len(shown) == limit or (ends and place < max(ends)):
                break
            shown.append(item)
            seen.add(position)
        passed.append((number, position))
    places: dict[int, str | None] = {}
    for number, part in parts.items():
        own = [position for of, position in passed if of == number]
        if len(own) == len(part.items):
            places[number] = part.next_cursor
        else:
            places[number] = own[-1] if own else before[number]
    ended = all(place is None for place in places.values())
    return shown, None if ended else write_cursor(
        {**before, **places}
    )  # unreachable partitions are queried again until then
