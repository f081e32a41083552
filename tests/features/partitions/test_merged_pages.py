"""Pages of several partitions as one list, whatever each of them examines at a time."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from firmq.shared.features.partitions.merged_pages import Part, merge_pages, order, read_cursor, write_cursor

LISTS = st.dictionaries(
    st.integers(0, 3), st.lists(st.tuples(st.integers(0, 30), st.booleans()), max_size=20), min_size=1
)
"""Entries of each partition: the score, and whether it matches the filter."""
ARCHIVED = st.lists(st.tuples(st.integers(0, 30), st.booleans()), max_size=10)
"""Entries of the history, which every partition has at the end of its list."""


def page_of(entries: list[tuple[str, bool]], cursor: str, limit: int, budget: int) -> Part[str]:
    """A page as a partition makes it: it examines at most `budget` entries."""
    start = next(
        (at for at, (position, _) in enumerate(entries) if not cursor or order(position) < order(cursor)),
        len(entries),
    )
    shown: list[str] = []
    at = start
    while at < len(entries) and at - start < budget and len(shown) < limit:
        if entries[at][1]:
            shown.append(entries[at][0])
        at += 1
    return Part(shown, shown, entries[at - 1][0] if at < len(entries) else None)


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
            key=lambda each: order(each[0]),
            reverse=True,
        )
        for number, found in lists.items()
    }
    found: list[str] = []
    cursor: str | None = None
    for _ in range(500):
        before = read_cursor(cursor, entries)
        asked = {number: place for number, place in before.items() if place is not None}
        pages = {number: page_of(entries[number], place, limit, budget) for number, place in asked.items()}
        items, cursor = merge_pages(pages, before, limit)
        assert len(items) <= limit
        found += items
        if cursor is None:
            break
    wanted = sorted(
        {position for some in entries.values() for position, matches in some if matches},
        key=order,
        reverse=True,
    )
    assert found == wanted


@pytest.mark.parametrize("cursor", ["", "1_a", "p.", "p.e30x", "p.W10", "p.eyIwIjoxfQ"])
def test_a_cursor_of_something_else_is_refused(cursor: str) -> None:
    with pytest.raises(ValueError, match=r".*"):
        read_cursor(cursor, [0, 1])


def test_a_cursor_survives_a_partition_that_is_added() -> None:
    cursor = write_cursor({0: "5_a", 1: None})
    assert read_cursor(cursor, [0, 1, 2]) == {0: "5_a", 1: None, 2: ""}
