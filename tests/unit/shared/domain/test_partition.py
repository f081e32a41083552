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
