"""Pages of a list: every task once, in order, however they are filtered, and each at a bounded cost."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta
from typing import TypeVar

import pytest

from firmq.shared.domain.task import TaskState
from firmq.shared.stores.batches import Batches, BatchTerms
from firmq.shared.stores.tasks import Filter
from tests.support.store import Store

Answer = TypeVar("Answer")


def pages(store: Store, wanted: Filter, limit: int) -> list[list[str]]:
    found: list[list[str]] = []
    cursor = None
    while True:
        page = store.records.page(wanted, limit=limit, cursor=cursor)
        found.append([item.id for item in page.items])
        cursor = page.next_cursor
        if cursor is None:
            return found


def with_entries_read(store: Store, ask: Callable[[], Answer]) -> tuple[Answer, int]:
    """What this answers, and how many entries of indexes the scripts may have read for it."""
    entries = 0
    with store.redis.monitor() as seen:
        answer = ask()
        store.redis.echo("that was all")
        while not (command := seen.next_command()["command"]).startswith("ECHO"):
            if found := re.search(r"^ZREVRANGE.* (\d+) (\d+)(?: WITHSCORES)?$", command):
                entries += int(found[2]) - int(found[1]) + 1
    return answer, entries


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


def test_tasks_of_one_due_time_are_shown_once_also_while_those_shown_last_go(store: Store) -> None:
    ids = [*store.submit(30, delay=timedelta(hours=1)), *store.submit(30, "high", delay=timedelta(hours=1))]
    shown: list[str] = []
    cursor = None
    while len(shown) < len(ids):
        page = store.records.page(Filter(state=TaskState.SCHEDULED), limit=7, cursor=cursor)
        shown += [item.id for item in page.items]
        store.queues.cancel(shown[-1], "")
        cursor = page.next_cursor
    assert shown == sorted(ids, reverse=True)
    assert cursor is None


@pytest.mark.parametrize("gone", [False, True], ids=["cursor there", "cursor gone"])
def test_a_page_deep_among_tasks_of_one_due_time_reads_no_more_than_the_first(store: Store, gone: bool) -> None:
    ids = sorted(store.submit(3000, delay=timedelta(hours=1)), reverse=True)
    cursor = f"{store.clock.now_us + 3_600_000_000}_{ids[2900]}"
    if gone:
        store.queues.cancel(ids[2900], "")
    wanted = Filter(state=TaskState.SCHEDULED, queue="normal")
    page, entries = with_entries_read(store, lambda: store.records.page(wanted, limit=50, cursor=cursor))
    assert [item.id for item in page.items] == ids[2901:2951]
    assert 50 <= entries <= 100


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


def test_batches_of_one_instant_are_not_lost_between_pages(store: Store) -> None:
    batches = Batches(store.scripts)
    ids = {f"batch{n:03}" for n in range(80)}
    for each in ids:
        batches.open(each, BatchTerms())
    shown: list[str] = []
    cursor = None
    while True:
        found, cursor, _ = batches.page(10, cursor)
        shown += [each.id for each in found]
        if cursor is None:
            break
    assert shown == sorted(ids, reverse=True)
