"""How often an executor looks for what its handlers left behind."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from firmq.worker.executors.handlers_loop import CALLS_LEFT
from firmq.worker.executors.leftovers import QUICK_US, Leftovers

NAME = "LEFT_BEHIND_BY_A_TEST"


@pytest.fixture
def told() -> list[str]:
    return []


@pytest.fixture
def leftovers(told: list[str]) -> Iterator[Leftovers]:
    yield Leftovers(lambda handler, what, level, ends: told.append(f"{handler}: {what}"))
    os.environ.pop(NAME, None)


def test_a_burst_of_short_attempts_is_checked_together(leftovers: Leftovers, told: list[str]) -> None:
    os.environ[NAME] = "1"
    assert leftovers.fit_after("first", QUICK_US // 2)
    assert NAME in os.environ
    assert leftovers.fit_after("second", QUICK_US // 2)
    assert NAME not in os.environ
    [line] = told
    assert line.startswith("first or second: ")


def test_calls_that_are_left_running_are_reported_once_for_a_handler(leftovers: Leftovers, told: list[str]) -> None:
    for handler in ("first", "first", "second"):
        leftovers.report_calls(handler)
    assert told == [f"{handler}: {CALLS_LEFT}" for handler in ("first", "second")]


def test_an_attempt_that_ran_long_enough_to_matter_is_checked_at_once(leftovers: Leftovers) -> None:
    os.environ[NAME] = "1"
    assert leftovers.fit_after("slow", QUICK_US)
    assert NAME not in os.environ


def test_an_idle_executor_checks_what_was_put_off(leftovers: Leftovers) -> None:
    os.environ[NAME] = "1"
    assert leftovers.fit_after("short", 1)
    assert leftovers.fit_when_idle()
    assert NAME not in os.environ
