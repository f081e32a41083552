"""Ids that name their partition, and names that prefer one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from firmq.shared.domain.partition import (
    MOST_PARTITIONS,
    mark_of_partition,
    partition_of_id,
    preferred,
    sibling,
    split,
)
from firmq.shared.domain.task import new_task_id
from firmq.shared.stores.idempotency import new_seed, task_id


@given(st.integers(1, MOST_PARTITIONS - 1))
def test_an_id_names_its_partition(number: int) -> None:
    mark = mark_of_partition(number)
    made = new_task_id(mark)
    assert partition_of_id(made) == number
    assert partition_of_id(f"{made}-hook-1") == number
    assert partition_of_id(task_id(new_seed(mark), 7)) == number
    assert partition_of_id(f"0123456789abcdef{mark}") == number


@pytest.mark.parametrize(
    "said",
    [
        "01M8F480KE5R8D1QBXRSWMDK3F",
        "01M8F480KE5R8D1QBXRSWMDK3F-hook-1",
        "nightly-20261127T181154Z",
        "0123456789abcdef",
        "",
        "a" * 128,
    ],
)
def test_other_ids_name_none(said: str) -> None:
    assert partition_of_id(said) is None


def test_a_partition_that_is_added_takes_its_share_and_moves_nothing_else() -> None:
    names = [f"key {number}" for number in range(2000)]
    before = {name: preferred(name, range(3))[0] for name in names}
    after = {name: preferred(name, range(4))[0] for name in names}
    moved = [name for name in names if before[name] != after[name]]
    assert {after[name] for name in moved} == {3}
    assert 400 < len(moved) < 600


@given(st.integers(0, MOST_PARTITIONS - 1), st.integers(0, MOST_PARTITIONS - 1))
def test_the_ids_of_a_bulk_action_lead_to_each_other(one: int, other: int) -> None:
    made = "0123456789abcdef" + mark_of_partition(one)
    assert sibling(made, mark_of_partition(other)) == "0123456789abcdef" + mark_of_partition(other)
    assert sibling("no-such-id", mark_of_partition(other)) == "no-such-id"


@given(st.integers(1, 10_000), st.dictionaries(st.integers(0, 9), st.integers(0, 10**9), min_size=1))
def test_shares_add_up_and_none_is_empty(amount: int, weights: dict[int, int]) -> None:
    shares = split(amount, weights)
    assert shares.keys() == weights.keys()
    assert min(shares.values()) >= 1
    assert sum(shares.values()) == max(amount, len(weights))


def test_shares_follow_the_weights() -> None:
    assert split(100, {0: 900, 1: 100}) == {0: 90, 1: 10}
    assert split(90, {0: 0, 1: 0, 2: 0}) == {0: 30, 1: 30, 2: 30}
    assert split(2, {0: 5, 1: 5, 2: 5}) == {0: 1, 1: 1, 2: 1}
