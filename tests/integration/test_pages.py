"""Pages of a list: every task once, in order, however they are filtered, and each at a bounded cost."""

from __future__ import annotations

from datetime import timedelta

import pytest

from shared.records import Filter
from shared.tasks import TaskState
from tests.integration.store import Store


def pages(store: Store, wanted: Filter, limit: int) -> list[list[str]]:
    found: list[list[str]] = []
    cursor = None
    while True:
        page = store.records.page(wanted, limit=limit, cursor=cursor)
        found.append([item.id for item in page.items])
        cursor = page.next_cursor
        if cursor is None:
            return found


def test_pages_show_every_task_once_newest_first(store: Store) -> None:
    ids = store.submit(25)
    found = pages(store, Filter(), 10)
    assert [len(page) for page in found] == [10, 10, 5]
    assert [each for page in found for each in page] == list(reversed(ids))


def test_pages_merge_the_queues_of_one_state(store: Store) -> None:
    ids = []
    for n in range(20):
        ids += store.submit(queue="high" if n % 3 else "normal")
        store.clock.advance(timedelta(seconds=1))
    found = pages(store, Filter(state=TaskState.PENDING), 7)
    assert [each for page in found for each in page] == list(reversed(ids))


def test_tasks_of_one_instant_are_not_lost_between_pages(store: Store) -> None:
    ids = [store.submit()[0] for _ in range(40)]
    assert {each for page in pages(store, Filter(), 3) for each in page} == set(ids)


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        (Filter(type="noop"), 12),
        (Filter(type="other"), 0),
        (Filter(queue="high"), 4),
        (Filter(tag="red"), 5),
        (Filter(state=TaskState.SCHEDULED), 3),
        (Filter(state=TaskState.SCHEDULED, queue="high"), 0),
        (Filter(state=TaskState.PENDING, tag="red"), 5),
    ],
)
def test_filters_find_exactly_what_matches(store: Store, wanted: Filter, expected: int) -> None:
    store.submit(5, tags=("red", "round"))
    store.submit(4, "high")
    store.submit(3, delay=timedelta(hours=1))
    assert sum(len(page) for page in pages(store, wanted, 2)) == expected


def test_a_rare_match_among_many_costs_bounded_pages_and_is_found(store: Store) -> None:
    [rare] = store.submit(queue="high")
    store.submit(3000)
    found = pages(store, Filter(queue="high"), 10)
    assert [each for page in found for each in page] == [rare]
    assert len(found) <= 5


@pytest.mark.parametrize("cursor", ["", "x", "1_", "_a", "nan", "1_" + "a" * 200, "1_a b", "9" * 40 + "_a"])
def test_a_made_up_cursor_is_refused(store: Store, cursor: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011  # the gateway words it
        store.records.page(Filter(), limit=5, cursor=cursor)
