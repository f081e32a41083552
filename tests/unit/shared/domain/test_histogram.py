"""Percentiles of histograms are exact to 5 %, and adding histograms loses nothing."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from firmq.shared.domain.histogram import SHARES, decode, encode, of, percentiles

DURATIONS = st.lists(st.floats(1e-6, 1e6), min_size=1)


@given(DURATIONS)
def test_percentiles_are_within_five_percent_of_the_true_ones(durations: list[float]) -> None:
    found = percentiles(sum(map(of, durations)))
    ranks = [math.ceil(share * len(durations)) for share in SHARES]
    assert found == pytest.approx([sorted(durations)[rank - 1] for rank in ranks], rel=0.05)


@given(DURATIONS, DURATIONS)
def test_the_sum_of_stored_histograms_is_the_histogram_of_all(some: list[float], others: list[float]) -> None:
    total = sum(decode(encode(sum(map(of, each)))) for each in (some, others))
    assert total == sum(map(of, some + others))


def test_a_stored_histogram_is_short() -> None:
    assert len(encode(1000 * of(0.2) + of(0.3))) < 40
    assert (encode(0), decode(b"")) == (b"", 0)


def test_nothing_has_no_percentile_and_durations_out_of_range_are_the_shortest_and_longest() -> None:
    assert percentiles(0) == [None] * 3
    assert of(0) == of(-1) == of(1e-6)
    assert of(1e30) == of(1e20) > of(1e9)
