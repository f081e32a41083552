"""Pages of several partitions as one list, whatever each of them examines at a time."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskqueue.gateway.partitions import merging

LISTS = st.dictionaries(
    st.integers(0, 3), st.lists(st.tuples(st.integers(0, 30), st.booleans()), max_size=20), min_size=1
)
"""Entries of each partition: the score, and whether it matches the filter."""
ARCHIVED = st.lists(st.tuples(st.integers(0, 30), st.booleans()), max_size=10)
"""Entries of the history, which every partition has at the end of its list."""


def page_of(entries: list[tuple[str, bool]], cursor: str, limit: int, budget: int) -> tuple[Any, list[str]]:
    """A page as a partition makes it: it examines at most `budget` entries."""
    start = next(
        (
            at
            for at, (position, _) in enumerate(entries)
            if not cursor or merging.order(position) < merging.order(cursor)
        ),
        len(entries),
    )
    shown: list[str] = []
    at = start
    while at < len(entries) and at - start < budget and len(shown) < limit:
        if entries[at][1]:
            shown.append(entries[at][0])
        at += 1
    return {"items": shown, "next_cursor": entries[at - 1][0] if at < len(entries) else None}, shown


@given(LISTS, ARCHIVED, st.integers(1, 6), st.integers(1, 7))
def test_all_pages_together_are_the_sorted_list(
    lists: dict[int, list[tuple[int, bool]]], archived: list[tuple[int, bool]], limit: int, budget: int
) -> None:
    entries = {
        number: sorted(
            [
                *((f"{score}_{at}x{number}", matches) for at, (score, matches) in enumerate(found)),
                *((f"h{score}_{at}", matches) for at, (score, matches) in enumerate(archived)),
            ],
            key=lambda each: merging.order(each[0]),
            reverse=True,
        )
        for number, found in lists.items()
    }
    found: list[str] = []
    cursor: str | None = None
    for _ in range(500):
        before = merging.read_cursor(cursor, entries)
        asked = {number: place for number, place in before.items() if place is not None}
        pages = {number: page_of(entries[number], place, limit, budget) for number, place in asked.items()}
        merged = merging.page(
            {number: page for number, (page, _) in pages.items()},
            {number: positions for number, (_, positions) in pages.items()},
            before,
            limit,
        )
        assert len(merged["items"]) <= limit
        found += merged["items"]
        cursor = merged["next_cursor"]
        if cursor is None:
            break
    wanted = sorted(
        {position for some in entries.values() for position, matches in some if matches},
        key=merging.order,
        reverse=True,
    )
    assert found == wanted


@pytest.mark.parametrize("cursor", ["", "1_a", "p.", "p.e30x", "p.W10", "p.eyIwIjoxfQ"])
def test_a_cursor_of_something_else_is_refused(cursor: str) -> None:
    with pytest.raises(ValueError, match=r".*"):
        merging.read_cursor(cursor, [0, 1])


def test_a_cursor_survives_a_partition_that_is_added() -> None:
    cursor = merging.write_cursor({0: "5_a", 1: None})
    assert merging.read_cursor(cursor, [0, 1, 2]) == {0: "5_a", 1: None, 2: ""}


def test_health_is_that_of_the_best_and_says_what_is_wrong_with_the_others() -> None:
    well = {"status": "ok", "workers": 2, "queues": {"normal": 3}, "notes": [], "redis": {"reachable": True}}
    away: Any = {"status": "unavailable", "workers": None, "queues": None, "notes": ["no answer"], "redis": {}}
    found = merging.health({0: away, 1: well, 2: well})
    assert (found["status"], found["workers"], found["queues"]) == ("degraded", 2, {"normal": 6})
    assert found["notes"] == ["partition 0: no answer"]
    assert merging.health({0: away})["status"] == "unavailable"


def test_values_of_a_breakdown_are_added_up() -> None:
    def part(**counts: int) -> Any:
        values = [{"value": value, "tasks": tasks} for value, tasks in counts.items()]
        one = {"field": "customer", "distinct": len(counts), "often": 0, "missing": 1, "values": values}
        return {"tasks": sum(counts.values()), "complete": True, "tags": {**one, "field": None}, "fields": [one]}

    found = merging.breakdown({0: part(ann=2, bob=1), 1: part(ann=3)})
    [field] = found["fields"]
    assert field["values"] == [{"value": "ann", "tasks": 5}, {"value": "bob", "tasks": 1}]
    assert (found["tasks"], field["missing"], field["distinct"]) == (6, 2, 2)
