"""How many tasks an executor holds, by how long tasks take."""

from __future__ import annotations

import pytest

from firmq.worker.engine.prefetch import AHEAD_SECONDS, MOST, PrefetchWindow


def test_nothing_is_claimed_ahead_before_anything_is_known() -> None:
    assert PrefetchWindow().window() == 1


def test_short_tasks_are_claimed_ahead_and_long_ones_are_not() -> None:
    prefetch = PrefetchWindow()
    prefetch.learn(0.00005)
    assert prefetch.window() == MOST
    prefetch.learn(2.0)
    assert prefetch.window() == 1


def test_after_a_long_task_it_takes_many_short_ones_to_claim_ahead_again() -> None:
    prefetch = PrefetchWindow()
    prefetch.learn(2.0)
    for _ in range(20):
        prefetch.learn(0.0001)
    assert prefetch.window() == 1
    for _ in range(300):
        prefetch.learn(0.0001)
    assert prefetch.window() > 20


@pytest.mark.parametrize(("seconds", "window"), [(0.0, MOST), (0.001, 20), (0.015, 1), (AHEAD_SECONDS, 1), (3600, 1)])
def test_as_much_is_claimed_ahead_as_takes_a_moment(seconds: float, window: int) -> None:
    prefetch = PrefetchWindow()
    prefetch.learn(seconds)
    assert prefetch.window() == window
