"""What a browser has chosen, and which pages are about what one partition has."""

from __future__ import annotations

import pytest

from firmq.dashboard.features.partitions.choice import id_in, read_choice
from tests.support.features import rows


def test_a_choice_is_read_back() -> None:
    assert [read_choice(str(number), range(3)) for number in range(3)] == [0, 1, 2]


@pytest.mark.parametrize("said", ["", "3", "all", "-1", "00001", "\u0661"])
def test_what_is_no_choice_is_ignored(said: str) -> None:
    assert read_choice(said, range(3)) is None


@pytest.mark.parametrize("path", ["/tasks/01AB/retry", "/batches/01AB", *rows("PATHS_WITH_ID")])
def test_a_path_with_an_id_is_that_of_one_partition(path: str) -> None:
    assert id_in(path)


@pytest.mark.parametrize("path", ["/tasks", "/workers", "/dead-letters/a", "/", *rows("PATHS_WITHOUT_ID")])
def test_other_pages_are_those_of_the_choice(path: str) -> None:
    assert not id_in(path)
