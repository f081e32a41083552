"""What a browser has chosen, and which pages show all partitions."""

from __future__ import annotations

import pytest

from firmq.dashboard.partition_choice import OF_ALL, OF_BULK, OF_ID, Choice, read_choice


@pytest.mark.parametrize("choice", [Choice(), Choice(number=0), Choice(number=12), Choice(all=False, number=3)])
def test_a_choice_is_read_back(choice: Choice) -> None:
    assert read_choice(str(choice), range(20)) == choice


@pytest.mark.parametrize("said", ["", "3", "all-3", "all-", "-1", "al", "all1", "1-all", "00001", "\u0661"])
def test_what_is_no_choice_is_ignored(said: str) -> None:
    assert read_choice(said, range(3)) is None


def test_a_path_with_an_id_is_that_of_one_partition() -> None:
    assert OF_ID.fullmatch("/tasks/01AB/retry")
    assert OF_ID.fullmatch("/batches/01AB")
    assert not OF_ID.fullmatch("/tasks")
    assert not OF_ID.fullmatch("/bulk/01AB")


def test_a_bulk_action_is_that_of_all_and_its_review_that_of_the_choice() -> None:
    assert OF_BULK.fullmatch("/bulk/0123456789abcdef/pause")
    assert not OF_BULK.fullmatch("/bulk/review")
    assert not OF_BULK.fullmatch("/bulk")


@pytest.mark.parametrize("path", ["/workers", "/queues", "/tasksx", "/health/ready", "/metrics", "/schedules/bulk"])
def test_other_pages_are_those_of_one_partition(path: str) -> None:
    assert not OF_ALL.fullmatch(path)


@pytest.mark.parametrize("path", ["/", "/tasks/", "/dead-letters", "/dead-letters/a", "/bulk", "/bulk/review"])
def test_lists_are_those_of_all(path: str) -> None:
    assert OF_ALL.fullmatch(path)
