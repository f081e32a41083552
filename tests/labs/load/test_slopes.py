"""What counts as growth, and what does not."""

from __future__ import annotations

import math
from random import Random

import pytest

from tests.labs.load.slopes import growth, percentile, thirds

TIMES = [5.0 * n for n in range(60)]


def test_what_grows_steadily_is_measured_whatever_noise_lies_over_it() -> None:
    dice = Random(1)
    row = [100 * at + dice.uniform(-2000, 2000) for at in TIMES]
    assert growth(TIMES, row) == pytest.approx(100 * TIMES[-1], rel=0.1)


def test_a_bad_moment_is_no_growth_and_a_step_counts_once_at_most() -> None:
    hump = [1000.0 if 40 <= n < 55 else 0.0 for n in range(60)]
    assert growth(TIMES, hump) == 0
    for begin in range(60):
        step = [0.0 if n < begin else 1000.0 for n in range(60)]
        assert growth(TIMES, step) < 1100


def test_steps_that_go_on_are_growth() -> None:
    stairs = [1000.0 * (n // 10) for n in range(60)]
    assert growth(TIMES, stairs) == pytest.approx(6000, rel=0.1)


def test_values_are_put_into_the_thirds_of_their_time() -> None:
    assert thirds([0, 9, 4, 5, 8, 1], [1, 6, 3, 4, 5, 2]) == [[1, 2], [3, 4], [6, 5]]


def test_a_percentile_is_a_value_that_was_seen() -> None:
    assert percentile(range(1, 101), 0.99) == 99
    assert percentile([3, 1, 2], 0.5) == 2
    assert math.isnan(percentile([], 0.5))
