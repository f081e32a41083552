"""Ids that name their store."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from firmq.shared.domain.store_number import id_suffix, store_of_id
from firmq.shared.domain.task import new_task_id
from firmq.shared.stores.idempotency import new_seed, task_id


@given(st.integers(1, 1024 - 1))
def test_an_id_names_its_store(number: int) -> None:
    mark = id_suffix(number)
    made = new_task_id(mark)
    assert store_of_id(made) == number
    assert store_of_id(f"{made}-hook-1") == number
    assert store_of_id(task_id(new_seed(mark), 7)) == number
    assert store_of_id(f"0123456789abcdef{mark}") == number


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
    assert store_of_id(said) is None
