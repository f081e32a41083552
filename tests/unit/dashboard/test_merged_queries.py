"""Several partitions asked at the same time, one of which does not answer."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from flask import Flask, g

from firmq.dashboard.merged_queries import MergedQueries
from firmq.shared.errors import HistoryUnavailable, StoreUnavailable

NONE: Any = None


@pytest.fixture
def merged() -> MergedQueries:
    return MergedQueries(dict.fromkeys(range(3), NONE), NONE, NONE, NONE)


def test_a_partition_that_is_late_is_not_waited_for_again(merged: MergedQueries) -> None:
    answered = threading.Event()

    def read(number: int) -> int:
        if number == 1:
            answered.wait(30)
        return number

    found, away = merged.ask(read, patience=0.2)
    assert found == {0: 0, 2: 2}
    assert list(away) == [1]
    found, _ = merged.ask(read, patience=30)
    assert found == {0: 0, 2: 2}, "its earlier answer is still awaited"
    answered.set()
    merged._late[1].result(10)
    found, away = merged.ask(read, patience=10)
    assert (found, away) == ({0: 0, 1: 1, 2: 2}, {})


def test_the_page_names_partitions_that_are_away_until_all_are(merged: MergedQueries) -> None:
    def read(number: int, away: int) -> int:
        if number < away:
            raise StoreUnavailable(f"nothing at {number}")
        return number

    with Flask("test").app_context():
        assert merged._ask(lambda number: read(number, 1)) == {1: 1, 2: 2}
        assert merged._ask(lambda number: read(number, 2), [1, 2]) == {2: 2}
        assert g.away == {0: "nothing at 0", 1: "nothing at 1"}
        with pytest.raises(StoreUnavailable, match="nothing at 0"):
            merged._ask(lambda number: read(number, 3))


def test_a_history_that_is_away_is_no_partition_that_is(merged: MergedQueries) -> None:
    def read(number: int) -> int:
        raise HistoryUnavailable("no history")

    with pytest.raises(HistoryUnavailable):
        merged.ask(read)
